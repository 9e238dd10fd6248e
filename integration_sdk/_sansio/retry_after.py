"""``Retry-After``: seconds or an HTTP date, as a floor in seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after(value: str | None, now: float) -> float | None:
    """Return how many seconds to come back after, at least 0.

    Args:
        value: Of the header.
        now: Unix time; `service_time`, where there is an answer to read it from.

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


def service_time(headers: Mapping[str, str], received_at: float) -> float:
    """Return the service's own clock as its answer tells it: an HTTP date is meant by that.

    Args:
        headers: Of the answer.
        received_at: Our own clock, which stands in where there is no ``Date``.
    """
    sent = _until_date(headers.get("Date", ""), 0.0)
    return received_at if sent is None else sent
