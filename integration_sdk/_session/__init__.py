"""The session layer: sends each `Request`, with rate limits and retries, and returns a `Response`.

``session`` joins the parts. ``call`` holds the options of a call, its state, and how it ends;
``loop_state`` the calls of one event loop, which wait there for their turns by the rules of
``_sansio.throttling``. ``transport`` sends once, with aiohttp, and ``failures`` says what it means
if that fails. ``key`` hides the API key, and ``call_log`` counts and reports calls.
"""

from __future__ import annotations

from integration_sdk._sansio.throttling.retry import RetryPolicy
from integration_sdk._session.call import CallOptions
from integration_sdk._session.call_log import CallInfo, SessionStats
from integration_sdk._session.key import ApiKeySource, hide
from integration_sdk._session.rate import SharedRate
from integration_sdk._session.session import Session
from integration_sdk._session.slot import Slot

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
