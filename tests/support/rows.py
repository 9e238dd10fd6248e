"""Rows as a coordinator makes them of requests."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from integration_sdk._push.agreement import natural_value
from integration_sdk._store.row import Lane, Row


def new_row(lane: Lane, payload: bytes, *, natural_key: str | None = None, **facts: Any) -> Row:
    """Return the row of a push that has neither been sent nor put on record."""
    return Row(
        lane=lane,
        payload=payload,
        payload_hash=sha256(payload).hexdigest() if "reference" in facts else "",
        natural_key=natural_key,
        natural_value=natural_value(payload, natural_key),
        **facts,
    )
