"""The session layer: a `Request` goes in, a `Response` comes out, in its turn and safely.

``session`` joins the parts, ``call`` is what one call is asked and known to be, ``turnstile``
puts futures around the rules of ``_sansio.throttling``, ``transport`` is one transmission over
aiohttp, ``key`` hides the API key, ``room`` is what belongs to one event loop, and ``call_log``
tells what happened.
"""

from __future__ import annotations

from integration_sdk._sansio.throttling.retry import RetryPolicy
from integration_sdk._session.call import BeforeSending, CallInfo, CallOptions, SessionStats
from integration_sdk._session.key import ApiKeySource, hide
from integration_sdk._session.session import Session

__all__ = [
    "ApiKeySource",
    "BeforeSending",
    "CallInfo",
    "CallOptions",
    "RetryPolicy",
    "Session",
    "SessionStats",
    "hide",
]
