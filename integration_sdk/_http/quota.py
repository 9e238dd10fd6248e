"""``X-Rate-Limit-*``: what the service says about the account's limits.

Assumed: published, not in the document. The same holds for ``Reset``, which is read as Unix
time, as seconds from now, or as a date.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from integration_sdk._answer_parts import Quota
from integration_sdk._http.retry_after import UNIX_TIMES_BEGIN
from integration_sdk._records.codec import parse_utc, to_utc


def read_quota(headers: Mapping[str, str], received_at: float) -> Quota | None:
    """Return the quota in an answer's headers; None if they contain none."""
    limit = _count(headers.get("X-Rate-Limit-Limit"))
    remaining = _count(headers.get("X-Rate-Limit-Remaining"))
    reset = _moment(headers.get("X-Rate-Limit-Reset"), received_at)
    if limit is None and remaining is None and reset is None:
        return None
    return Quota(limit=limit, remaining=remaining, reset=reset)


def _count(text: str | None) -> int | None:
    try:
        return int(float(text)) if text is not None else None
    except (ValueError, OverflowError):
        return None


def _moment(text: str | None, received_at: float) -> datetime | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return _date(text)
    try:
        if number >= UNIX_TIMES_BEGIN:
            return datetime.fromtimestamp(number, UTC)
        return datetime.fromtimestamp(received_at, UTC) + timedelta(seconds=number)
    except (ValueError, OverflowError, OSError):
        return None


def _date(text: str) -> datetime | None:
    for read in (parse_utc, parsedate_to_datetime):
        try:
            return to_utc(read(text))
        except (ValueError, TypeError, OverflowError):
            continue
    return None
