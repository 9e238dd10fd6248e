"""What a list says of itself while it is read."""

from __future__ import annotations

from typing import Literal

from attrs import Factory, define, frozen


@frozen(kw_only=True)
class ListProgress:
    """How far a list has been read.

    Attributes:
        done: Items handed out, those before the cursor included.
        total: ``totalResults`` as last answered, or fewer by ``limit=``; None before the
            first answer.
        rate: Items a second of this run; 0.0 before the first.
        eta: Seconds to `total` at this rate; None where it cannot be told.
    """

    done: int
    total: int | None
    rate: float
    eta: float | None


@frozen(kw_only=True)
class Drift:
    """One sign that the list changed while it was read, or does not add up.

    Attributes:
        kind: "total" (``totalResults`` changed), "duplicate" (items came twice), "gap"
            (items may be missing) or "count" (at the end, more or fewer items than
            ``totalResults``).
        page: Where it was noticed.
        detail: In words.
    """

    kind: Literal["total", "duplicate", "gap", "count"]
    page: int | None
    detail: str

    def __str__(self) -> str:
        return f"page {self.page}: {self.detail}"


@define(kw_only=True)
class ListReport:
    """What reading a list took and showed.

    Attributes:
        pages: Pages opened.
        items: Items handed out.
        requests: Requests sent, those for pages ahead and repeated ones included.
        waits: Seconds lost to repetitions and to waiting for a turn.
        duplicates: Items that were seen twice.
        invalid: Items that did not fit the model.
        drift: Signs that the list changed meanwhile, in order.
    """

    pages: int = 0
    items: int = 0
    requests: int = 0
    waits: float = 0.0
    duplicates: int = 0
    invalid: int = 0
    drift: list[Drift] = Factory(list)
