"""``Retry-After``: seconds or an HTTP date, as a floor in seconds."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after(value: str | None, now: float) -> float | None:
    """Return how many seconds after *now* (Unix time) to come back, at least 0.

    None where the header is absent or says nothing that can be read.
    Assumed: the document does not name the header; the published API sends it on 429.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = _number(text)
    if seconds is None:
        seconds = _until_date(text, now)
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
