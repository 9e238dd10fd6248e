"""Reads the headers by which the service says how long to wait, and what is left of its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from integration_sdk._records.codec import parse_utc, to_utc
from integration_sdk.models import Quota

UNIX_TIMES_BEGIN: Final = 1e9  # numbers from here on are Unix times, not seconds from now


def read_retry_after(headers: Mapping[str, str], received_at: float) -> float | None:
    """Return the seconds to wait that ``Retry-After`` asks for, at least 0; None if unknown.

    A date is compared with the service's own time, if the answer has a ``Date``, else with
    *received_at*, the Unix time by our clock.

    Assumed: the document does not name the header; the published API sends it on 429.
    """
    value = headers.get("Retry-After")
    if value is None:
        return None
    by_service = told_time(headers)
    now = received_at if by_service is None else by_service
    seconds = _number(value.strip())
    if seconds is None:
        seconds = _until_date(value.strip(), now)
    elif seconds >= UNIX_TIMES_BEGIN:  # else the gate would stay closed for decades
        seconds -= now
    return None if seconds is None else max(0.0, seconds)


def told_time(headers: Mapping[str, str]) -> float | None:
    """Return the Unix time by the service's clock, in whole seconds; None if there is none."""
    return _until_date(headers.get("Date", ""), 0.0)


def read_quota(headers: Mapping[str, str], received_at: float) -> Quota | None:
    """Return the account's limits in ``X-Rate-Limit-*``; None if there are none.

    Assumed: published, not in the document. ``Reset`` may be a Unix time, seconds, or ISO 8601.
    """
    names = ("X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset")
    limit, remaining, reset = map(headers.get, names)
    if limit is remaining is reset is None:
        return None
    quota = Quota(
        limit=_count(limit), remaining=_count(remaining), reset=_moment(reset, received_at)
    )
    return None if quota == Quota() else quota


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


def _count(text: str | None) -> int | None:
    try:
        return int(float(text)) if text is not None else None
    except (ValueError, OverflowError):
        return None


def _moment(text: str | None, received_at: float) -> datetime | None:
    number = _number(text or "")
    try:
        if number is None:
            return to_utc(parse_utc(text))
        return datetime.fromtimestamp(number + (number < UNIX_TIMES_BEGIN) * received_at, UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
