"""One reading of a list: fetches the pages that the walk wants, and decodes their items.

The walk decides which pages to fetch. Pages that were fetched ahead are kept as bytes until their
turn. Items are handed out in slices: a slice is a plain iterator, so an item costs no task
switch, and the event loop runs between slices.

If a reading ends early (by an error, a cancellation or `Stream.stop`), its requests are cancelled.
After an error it keeps its place, and can go on from there. A page or chunk counts as handed out
when it is complete; until then the cursor stays at its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from attrs import define, evolve, field

from integration_sdk._http.responses import FetchPage, Response
from integration_sdk._http.statuses import Scope, scope_of
from integration_sdk._list.cursor import Position, write_cursor
from integration_sdk._list.drift import DriftWatch, shortfall
from integration_sdk._list.fetching import Fetched, Fetching
from integration_sdk._list.page import ItemReader, PageItems, RawPage
from integration_sdk._list.report import ListProgress, ListReport
from integration_sdk._list.slices import Slices
from integration_sdk._list.walk import Walk
from integration_sdk._warnings import warn, warn_if_legacy
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    BadRequest,
    DriftWarning,
    IntegrationError,
    InvalidItem,
    MalformedResponse,
    NotFound,
    PaginationError,
    ResponseTooLarge,
    ResultSetChanged,
)

T = TypeVar("T")
MOST_DRIFT = 100
"""Maximum number of signs of drift in a report."""
OnDrift = Literal["report", "warn", "raise", "repair"]
OnInvalid = Callable[[InvalidItem], object]
"""Statuses that mean that a page took too long, for the service or a proxy in front of it."""


@define(eq=False)
class Stream(Generic[T]):
    """One reading of a list, from the walk's start to its end.

    Attributes:
        walk: Decides which pages to fetch, and where the list ends.
        reader: Decodes pages and items.
        fetch: Sends a request.
        clock: Seconds, monotonic; for slices and progress.
        on_invalid: Called with each item that does not fit the model, instead of raising.
        on_drift: What to do about a sign of drift.
        watch: Looks for signs of drift; None if the walk itself does.
        want_extra: Whether to read a page's unknown fields.
        one_call: Whether a single page is wanted, within one timeout. A page that takes too
            long is then not requested again in smaller sizes.
        timeout: Seconds to wait for a page, in whatever sizes it is requested; None for no limit.
        report: Statistics so far.
        items: The current page and its items; None before the first.
    """

    walk: Walk
    reader: ItemReader
    fetch: FetchPage
    clock: Callable[[], float]
    on_invalid: OnInvalid | None = None
    on_drift: OnDrift = "report"
    watch: DriftWatch | None = None
    want_extra: bool = False
    one_call: bool = False
    timeout: float | None = None
    report: ListReport = field(factory=ListReport)

    items: PageItems | None = field(init=False, default=None)
    _fetching: Fetching = field(init=False)
    _slices: Slices = field(init=False)
    _busy: bool = field(init=False, default=False)
    _unfinished: list[T] | None = field(init=False, default=None)
    """Items of the page that `next_page` was decoding when it was cancelled; else None."""
    _held_at: Position | None = field(init=False, default=None)
    """Where `cursor` stays while a page or chunk is being filled; None between two."""
    _stopped_at: Position | None = field(init=False, default=None)
    """Where `stop` ended the reading; None until then."""
    _shortfall_told: bool = field(init=False, default=False)
    """Whether a shortfall at the end of the list has been reported."""

    def __attrs_post_init__(self) -> None:
        self._fetching = Fetching(
            self.walk,
            self.fetch,
            self.clock,
            self.report,
            timeout=self.timeout,
            patient=not self.one_call,
        )
        self._slices = Slices(self.clock)

    # Items

    async def more(self) -> Iterator[T] | None:
        """Return an iterator over the next few items; None at the end of the list.

        The iterator decodes each item when it is taken. Pass any exception it raises to `unfit`.
        """
        with self._one_at_a_time():
            self._end_slice()
            while not self._left:
                if not await self._open_next():
                    return None
            await self._slices.breathe()
            return self._next_slice() if self._left else None

    async def next_page(self) -> list[T] | None:
        """Open the next page and return all its items; None at the end of the list."""
        with self._one_at_a_time():
            if self._unfinished is None:
                began = self.position
                # A page is open already if drift was raised when it was opened.
                if not (self._left or await self._open_next()):
                    return None
                self._held_at, self._unfinished = began, []
            while self._left:
                self.collect(self._unfinished, self._next_slice())
                self._end_slice()
                await self._slices.breathe()
            items, self._held_at, self._unfinished = self._unfinished, None, None
            return items

    def hold(self) -> None:
        """Keep the cursor where it is until `release`."""
        self._held_at = self._held_at or self.position

    def release(self) -> None:
        """Move the cursor to after the last item taken."""
        self._held_at = None

    def collect(self, items: list[T], ready: Iterable[T]) -> None:
        """Append *ready* to *items*; pass items that do not fit to `unfit`."""
        while True:
            try:
                return items.extend(ready)
            except Exception as error:  # a model's own code may raise anything
                self.unfit(error)

    def unfit(self, error: Exception) -> None:
        """Pass an item that could not be decoded to ``on_invalid``, or raise.

        Raises:
            InvalidItem: There is no ``on_invalid``.
        """
        assert self.items is not None  # noqa: S101  # only an open page has items to decode
        invalid = self.items.invalid(error, self.walk.request)
        self.walk.unusable()
        invalid.cursor = self.cursor
        self.report.invalid += 1
        if self.on_invalid is None:
            self._fetching.recall()
            raise invalid from error
        self.on_invalid(invalid)

    # Where it is

    @property
    def position(self) -> Position:
        """The place after the last item handed out."""
        known = self._stopped_at or self._held_at
        return known or self.walk.position(self.items.taken if self.items else 0)

    @property
    def cursor(self) -> str:
        """`position` as a string."""
        return write_cursor(self.walk.request, self.position)

    @property
    def progress(self) -> ListProgress:
        """How far the reading has got, and how fast it is."""
        done, total = self.position.done, self._to_read
        began = self._slices.began
        elapsed = 0.0 if began is None else self.clock() - began
        rate = self._count() / elapsed if elapsed > 0 else 0.0
        left = None if total is None else max(total - done, 0)
        return ListProgress(
            done=done,
            total=total,
            rate=rate,
            eta=left / rate if left is not None and rate else None,
        )

    @property
    def _to_read(self) -> int | None:
        """Number of items to read in all, including those before the cursor."""
        walk = self.walk
        if walk.total is None or walk.limit is None:
            return walk.total
        return min(walk.total, walk.start.done + walk.limit)

    def current_report(self) -> ListReport:
        """Return a copy of the report as of now."""
        items = self._count() - self.report.invalid
        return evolve(self.report, items=items, drift=[*self.report.drift])

    def _count(self) -> int:
        return self.walk.offered - (self.items.left if self.items else 0)

    # Pages

    @property
    def _left(self) -> int:
        """Number of items of the current page that are still to be handed out."""
        if self.items is None:
            return 0
        if self.walk.limit is None:
            return self.items.left
        return min(self.items.left, self.walk.limit - self._count())

    def _next_slice(self) -> Iterator[Any]:
        assert self.items is not None  # noqa: S101  # _left said so
        size = min(self._slices.size, self._left)
        self._slices.handing(size)
        return islice(self.items.values, size)

    def _end_slice(self) -> None:
        """Pass an item to `unfit` if its model raised StopIteration, which ended the slice."""
        self._slices.taken()
        if self.items is not None and self.items.lost:
            self.unfit(RuntimeError("its model raised StopIteration"))

    async def _open_next(self) -> bool:
        """Make the next page the current one; False at the end of the list."""
        self._fetching.begin_waiting()
        while self._stopped_at is None:
            head = self.walk.head
            if head is None:
                return self._at_the_end()
            self._fetching.send(waiting=True)
            await self._slices.breathe()  # requests leave when the event loop runs
            answer = await self._fetching.answer(head, self._try_to_recover)
            page = await self._read(answer.response) if answer else None
            if self._stopped_at is not None:
                break
            if answer and page:
                if self._open(answer, page):
                    return True
                self._fetching.begin_waiting()
        return False

    def _open(self, answer: Fetched, page: RawPage) -> bool:
        """Make *page* the current page; False if the walk cannot use it."""
        before = self.items.page if self.items else None
        total = self.walk.total
        skip = self.walk.opened(page, answer.response.size, answer.seconds)
        self._fetching.keep_wanted()
        if skip is not None:
            self.items = PageItems.of(self.walk.to_hand_out(page), self.reader, skip)
            self.report.pages += 1
            self._fetching.send(waiting=False)
            if self.report.pages == 1:
                warn_if_legacy(self.walk.request)
        looked_again = skip is None or 0 < page.count <= skip
        if self.watch is not None and not looked_again:
            self.walk.notes += self.watch.compare(before, page, total)
        self._tell_drift()
        return skip is not None

    async def _read(self, response: Response) -> RawPage:
        opening = self.reader.open(response.pieces, extra=self.want_extra)
        try:
            while True:
                next(opening)
                await self._slices.breathe()
        except StopIteration as end:
            page: RawPage = end.value
            return page
        except MalformedResponse as error:
            request, head = self.walk.request, self.walk.head
            which = f" for page {head.number}" if head and head.number else ""
            raise MalformedResponse(
                f"{request} answered {response.status}{which}, but {error}",
                status=response.status,
                **request.facts,
                attempts=response.attempts,
            ) from None

    def _try_to_recover(self, error: Exception) -> bool:
        """Let the walk go on after *error*, the answer to its head; False if it cannot."""
        if isinstance(error, NotFound | BadRequest):
            return self.walk.skip_head()
        gateway = isinstance(error, ApiError) and scope_of(error.status) is Scope.GATEWAY
        slow = gateway or isinstance(error, AnswerLost)
        if isinstance(error, ResponseTooLarge) or (slow and not self.one_call):
            return self._fetching.seconds_left > 0 and self.walk.shrink_head()
        return False

    def _at_the_end(self) -> bool:
        problem = self.walk.resume_behind_problem()
        if problem is not None:
            raise problem
        if self.watch is not None and not self._shortfall_told and not self.walk.satisfied:
            number = self.items.page.number if self.items else None
            done = self.walk.start.done + self._count()
            self.walk.notes += shortfall(done, self.walk.total, number)
        self._shortfall_told = True
        self._tell_drift()
        return False

    def _tell_drift(self) -> None:
        """Report new signs of drift, and warn or raise if the caller wants that."""
        noted, self.walk.notes = self.walk.notes, []
        self.report.drift += noted[: MOST_DRIFT - len(self.report.drift)]
        if self.watch is not None:
            self.report.duplicates = self.watch.duplicates
        for drift in noted:
            text = f"{self.walk.request}, {drift}"
            if self.on_drift == "warn":
                warn(text, DriftWarning)
            if self.on_drift == "raise":
                raise ResultSetChanged(
                    f"{text}; the list changed while it was read",
                    page=drift.page,
                    **self.walk.request.facts,
                )

    # Ends

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._busy:
            raise PaginationError(
                "another task is waiting for the next item of this iterator; give each task "
                "an iterator of its own, or pass items on through an asyncio.Queue"
            )
        self._busy = True
        was_open = self._stopped_at is None
        try:
            yield
            if was_open:
                self._check_open()
        except IntegrationError as error:
            error.cursor = error.cursor or self.cursor
            self._fetching.recall()
            raise
        except BaseException:
            self._fetching.recall()
            raise
        finally:
            self._busy = False

    def _check_open(self) -> None:
        if self._stopped_at is not None:
            raise PaginationError(
                "another task closed this iterator while this one waited for an item"
            )

    def stop(self) -> None:
        """End the reading here: cancel requests, drop pages. Never raises."""
        if self._stopped_at is None:
            self._stopped_at = self.position
            self.walk.dropped(self.items.left if self.items else 0)
            self.items = self._unfinished = None
            self._fetching.recall()
