"""Push options: check a record against them, render them as JSON Schema or as a form.

``options`` holds the public classes. ``fields`` reads the service's description, ``rules`` the
rules that it states in plain words; ``words`` phrases problems; ``schema`` and ``form`` render.
"""
