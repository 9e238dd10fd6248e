"""The base class of the walks along a list."""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import define, field

from integration_sdk._http.requests import Request
from integration_sdk._list.cursor import Position
from integration_sdk._list.page import RawPage
from integration_sdk._list.page_queue import PageQueue, PageRequest
from integration_sdk._list.report import Drift
from integration_sdk.errors import PaginationError


@define(kw_only=True)
class Walk(ABC):
    """One walk along a list: decides which pages to request, and checks the answers.

    Attributes:
        request: The request for the first page; all others have its path and filter.
        start: Where to begin.
        queue: The pages to read.
        limit: Maximum number of items; None for all.
        current: The page being handed out.
        total: ``totalResults`` as last answered.
        offered: Number of items in the pages opened so far.
        notes: Signs of drift that have not been reported yet.
    """

    request: Request
    start: Position
    queue: PageQueue
    limit: int | None = None

    current: PageRequest | None = field(init=False, default=None)
    total: int | None = field(init=False, default=None)
    offered: int = field(init=False, default=0)
    notes: list[Drift] = field(init=False, factory=list)

    @property
    def head(self) -> PageRequest | None:
        """The page that is handed out next; None at the end of the list or the limit."""
        return self.queue.pages[0] if self.queue.pages and not self.satisfied else None

    @property
    def satisfied(self) -> bool:
        """Whether the pages opened so far hold *limit* items."""
        return self.limit is not None and self.offered >= self.limit

    def to_fetch(self, *, waiting: bool) -> list[PageRequest]:
        """Return the pages to request now, in order.

        Args:
            waiting: Whether the head is being waited for; if so, it is requested regardless
                of the window and the bytes held.
        """
        if self.head is None:
            return []
        room = self.queue.room(waiting=waiting)
        pages = self.queue.pages
        while len(pages) < room and (further := self.beyond(pages[-1])) is not None:
            pages.append(further)
        return self.queue.to_fetch(room)

    @abstractmethod
    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return the page after *tail*, to request without knowing its link; None for none."""

    @abstractmethod
    def opened(self, page: RawPage, size: int, seconds: float = 0.0) -> int | None:
        """Make the head's answer the current page.

        Args:
            page: The answer.
            size: Its size in bytes.
            seconds: How long it took.

        Returns:
            How many of its items to skip, because they were handed out before; None if the
            page cannot be used: the walk then has another head, or none.

        Raises:
            PaginationError: It is not the page that was requested. The head stays.
        """

    def to_hand_out(self, page: RawPage) -> RawPage:
        """Return *page*, which was just opened, with its items in the order to hand them out."""
        return page

    @abstractmethod
    def shrink_head(self) -> bool:
        """Make the head smaller, as its answer was too slow or too large; False if it cannot be."""

    @abstractmethod
    def skip_head(self) -> bool:
        """Go on without the head, which does not exist; False if that is an error."""

    @abstractmethod
    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""

    def resume_behind_problem(self) -> PaginationError | None:
        """Return the error that ended the walk, if any, and prepare to read that page again."""
        return None

    def dropped(self, count: int) -> None:
        """Note that *count* items of the current page will not be handed out."""
        self.offered -= count

    def unusable(self) -> None:
        """Note that an item could not be decoded; it does not count towards the limit."""
        if self.limit is not None:
            self.limit += 1

    def check_number(self, wanted: PageRequest, number: int | None) -> None:
        """Raise if the answer has a different page *number* than *wanted*."""
        if None not in {wanted.number, number} and wanted.number != number:
            what = f"page {wanted.number} was requested, but page {number} was returned"
            raise self.error(what, wanted.number)

    def error(
        self, what: str, page: int | None, kind: type[PaginationError] = PaginationError
    ) -> PaginationError:
        """Return an error that says that the list cannot be read beyond *page*."""
        return kind(
            f"{self.request}: {what}; the list cannot be read on from here",
            page=page,
            **self.request.facts,
        )
