"""When a call may leave, and whether it may be sent again.

``throttle`` joins the parts: the ``gate`` that a 429 or 503 closes, the ``window`` of calls
under way, the ``pace`` at which they leave, and the ``fair_queue`` of those that wait. ``retry``
decides about another transmission; ``quota`` reads the service's rate-limit headers.
"""
