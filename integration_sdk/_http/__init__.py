"""HTTP: takes a `Request` and returns a `Response`, with key, limits and retries.

``session`` joins the parts. A ``call`` waits for its turn, as the ``limiter`` decides by the
``limits`` of the service and of each company. Then ``transport`` sends it once, with aiohttp.
``statuses`` has what each answer means. The rules do no I/O and read no clock (a contract).
"""

from __future__ import annotations

from integration_sdk._http.call import CallInfo, CallOptions, SessionStats
from integration_sdk._http.credentials import ApiKeySource, hide
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._http.session import Session

__all__ = [
    "ApiKeySource",
    "CallInfo",
    "CallOptions",
    "RetryPolicy",
    "Session",
    "SessionStats",
    "hide",
]
