"""Push options: check a record against them, render them as JSON Schema or as a form.

``check`` holds the public classes. ``description`` reads the service's description, ``rules`` the
rules that it states in plain words; ``words`` phrases problems; ``render`` and ``form`` render.
"""
