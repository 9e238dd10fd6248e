"""What all walks along a list share: a start, a line of pages to come, and a count."""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import define, field

from integration_sdk._sansio.paging.cursor import Position
from integration_sdk._sansio.paging.items import Sheet
from integration_sdk._sansio.paging.line import Ask, Line
from integration_sdk._sansio.paging.report import Drift
from integration_sdk._sansio.requests import Request
from integration_sdk.errors import PaginationError


@define(kw_only=True)
class Walk(ABC):
    """One walk along a list.

    Attributes:
        request: The list's first page; its path and filter bind every other.
        start: Where to begin.
        line: The pages to come.
        limit: Items wanted, if not all.
        current: The page being handed out.
        guessing: Whether no link leads to the head, only arithmetic does.
        total: ``totalResults`` as last answered.
        offered: Items of the pages opened so far.
        notes: Signs of drift, for whoever reports them to take.
    """

    request: Request
    start: Position
    line: Line
    limit: int | None = None

    current: Ask | None = field(init=False, default=None)
    guessing: bool = field(init=False, default=False)
    total: int | None = field(init=False, default=None)
    offered: int = field(init=False, default=0)
    notes: list[Drift] = field(init=False, factory=list)

    @property
    def head(self) -> Ask | None:
        """The page that is handed out next; None when the list, or the limit, has ended."""
        return self.line.asks[0] if self.line.asks and not self.satisfied else None

    @property
    def satisfied(self) -> bool:
        """Whether the pages opened so far hold all that is wanted."""
        return self.limit is not None and self.offered >= self.limit

    def to_fetch(self, *, waiting: bool) -> list[Ask]:
        """Return the pages to ask for now, nearest first.

        Args:
            waiting: Whether the head is waited for: it is then asked for whatever
                the window and the bytes held say.
        """
        if self.head is None:
            return []
        room = self.line.room(waiting=waiting)
        asks = self.line.asks
        while len(asks) < room and (further := self.beyond(asks[-1])) is not None:
            asks.append(further)
        return self.line.to_fetch(room)

    @abstractmethod
    def beyond(self, tail: Ask) -> Ask | None:
        """Return the page to ask for behind *tail* without knowing its link, if there is one."""

    @abstractmethod
    def opened(self, sheet: Sheet, size: int, seconds: float = 0.0) -> int | None:
        """Take the head's answer: it becomes the current page.

        Args:
            sheet: The page.
            size: Its bytes.
            seconds: What it took.

        Returns:
            How many of its items are not to be handed out, because they were before;
            None if the page is no use and the head is to be asked for again.

        Raises:
            PaginationError: It is not the page that was asked for. The head stays.
        """

    @abstractmethod
    def too_much(self) -> bool:
        """Ask for the head in a smaller size, because it timed out; False if that is no use."""

    @abstractmethod
    def position(self, taken: int) -> Position:
        """Return the place behind the first *taken* items of the current page."""

    def resume_behind_problem(self) -> PaginationError | None:
        """Return why there is no next page, if that is an error, and prepare to look again."""
        return None

    def ended(self) -> None:
        """Note that the head, which no link led to, does not exist."""
        self.line.start_over()

    def dropped(self, count: int) -> None:
        """Note that *count* items of the current page will not be handed out."""
        self.offered -= count

    def unusable(self) -> None:
        """Note that an item could not be used: another takes its place in the limit."""
        if self.limit is not None:
            self.limit += 1

    def check_number(self, ask: Ask, number: int | None) -> None:
        """Raise if the page that came has another *number* than the one that was requested."""
        if None not in {ask.number, number} and ask.number != number:
            what = f"page {ask.number} was requested, but page {number} was returned"
            raise self.error(what, ask.number)

    def error(
        self, what: str, page: int | None, kind: type[PaginationError] = PaginationError
    ) -> PaginationError:
        """Return the error of a list that cannot be read on from *page*."""
        return kind(
            f"GET {self.request.path}: {what}; the list cannot be read on from here",
            page=page,
            method=self.request.method,
            path=self.request.path,
        )
