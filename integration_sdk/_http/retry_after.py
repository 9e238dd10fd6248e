"""Reads ``Retry-After``, which is a number of seconds or an HTTP date."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

UNIX_TIMES_BEGIN: Final = 1e9
"""Numbers from here on are Unix times, not seconds from now."""


def retry_after(value: str | None, now: float) -> float | None:
    """Return the minimum number of seconds to wait, at least 0; None if unknown.

    Args:
        value: The header's value; None if it is absent.
        now: Unix time by the service's clock; see `service_time`.

    Assumed: the document does not name the header; the published API sends it on 429. A number
    that can only be a Unix time is read as one.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = _number(text)
    if seconds is None:
        seconds = _until_date(text, now)
    elif seconds >= UNIX_TIMES_BEGIN:  # else the gate would stay closed for decades
        seconds -= now
    return None if seconds is None else max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until_date(text: str, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now


def service_time(headers: Mapping[str, str], received_at: float) -> float:
    """Return the Unix time by the service's clock, which HTTP dates in its answer refer to.

    Args:
        headers: The answer's headers.
        received_at: The time by our own clock, used if there is no ``Date``.
    """
    sent = told_time(headers)
    return received_at if sent is None else sent


def told_time(headers: Mapping[str, str]) -> float | None:
    """Return the Unix time by the service's clock, in whole seconds; None if it tells none."""
    return _until_date(headers.get("Date", ""), 0.0)
