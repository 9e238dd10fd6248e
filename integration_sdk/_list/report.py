"""Progress and statistics of reading a list."""

from __future__ import annotations

from typing import Literal

from attrs import Factory, define, frozen


@frozen(kw_only=True)
class ListProgress:
    """How far a list has been read.

    Attributes:
        done: Items yielded, including those before the cursor.
        total: Items to read in all: ``totalResults`` of the last answer, or ``limit=`` if that
            is less. None before the first answer.
        rate: Items per second in this run; 0.0 before the first.
        eta: Seconds left at this rate; None if unknown.
    """

    done: int
    total: int | None
    rate: float
    eta: float | None


@frozen(kw_only=True)
class Drift:
    """One sign that the list changed while it was read, or does not add up.

    Attributes:
        kind: "total" (``totalResults`` changed), "duplicate" (items came twice), "order" (a page
            begins before the one before it ended), "gap" (items may be missing) or "count" (at
            the end, more or fewer items than ``totalResults``).
        page: Number of the page where it was noticed, if known.
        detail: A description in words.
    """

    kind: Literal["total", "duplicate", "gap", "order", "count"]
    page: int | None
    detail: str

    def __str__(self) -> str:
        return f"page {self.page}: {self.detail}"


@define(kw_only=True)
class ListReport:
    """Statistics of reading a list.

    Attributes:
        pages: Pages opened.
        items: Items yielded.
        requests: Requests sent, including pages fetched ahead and retries.
        waits: Seconds spent waiting for rate limits and between retries.
        duplicates: Items that came twice.
        invalid: Items that did not fit the model.
        drift: Signs that the list changed while it was read, in order.
    """

    pages: int = 0
    items: int = 0
    requests: int = 0
    waits: float = 0.0
    duplicates: int = 0
    invalid: int = 0
    drift: list[Drift] = Factory(list)
