"""HTTP: takes a `Request` and returns a `Response`, with key, limits and retries.

``session`` joins the parts. A call (``call``) waits for its turn with those of its event loop
(``loop_state``), as ``limiter`` decides: by the ``gate`` that a 429 or 503 closes, the ``window``
of calls under way, the ``pace`` at which they leave, the ``fair_queue`` of those that wait, and a
shared ``rate``, if any. In its ``slot`` it is sent once, by ``transport``, with aiohttp;
``failures`` says what it means if that fails. ``judgement`` has what each answer means, ``retry``
how often and when it is sent again, ``responses`` the value or the error for the caller.
``credentials`` hides the API key, and ``call_log`` counts and reports calls.

Rules and effects stand side by side; the rules do no I/O and read no clock (a contract).
"""

from __future__ import annotations

from integration_sdk._http.call import CallOptions
from integration_sdk._http.call_log import CallInfo, SessionStats
from integration_sdk._http.credentials import ApiKeySource, hide
from integration_sdk._http.rate import SharedRate
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._http.session import Session
from integration_sdk._http.slot import Slot

__all__ = [
    "ApiKeySource",
    "CallInfo",
    "CallOptions",
    "RetryPolicy",
    "Session",
    "SessionStats",
    "SharedRate",
    "Slot",
    "hide",
]
