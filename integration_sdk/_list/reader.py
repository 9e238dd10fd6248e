"""One reading of a list: fetches the pages that the walk wants, and decodes their items.

The walk decides which pages to fetch. Each page is fetched by a task of its own; what comes ahead
is kept as bytes until its turn. Items are handed out in slices of about 1.5 ms: a slice is a plain
iterator, so an item costs no task switch, and the event loop runs between slices.

A reading that ends, in whatever way, cancels its requests. A page or chunk counts as handed out
when it is complete; until then the cursor stays at its beginning.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeVar

from attrs import define, evolve, field, frozen

from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import FetchPage, Response, check, not_json
from integration_sdk._http.statuses import Scope, scope_of
from integration_sdk._list.cursor import Position, number_of, write_cursor
from integration_sdk._list.drift import DriftWatch, ListProgress, ListReport, shortfall
from integration_sdk._list.page import ItemReader, PageItems, RawPage
from integration_sdk._list.walk import PageRequest, Walk
from integration_sdk._system import current_task_cancelled
from integration_sdk._text import warn_if_legacy
from integration_sdk._warnings import warn
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    BadRequest,
    DriftWarning,
    IntegrationError,
    InvalidItem,
    MalformedResponse,
    NotFound,
    ResponseTooLarge,
    ResultSetChanged,
)

T = TypeVar("T")
MOST_DRIFT: Final = 100
"""Maximum number of signs of drift in a report."""
SLICE_SECONDS: Final = 0.0015
FIRST_SLICE: Final = 64
SMALLEST_SLICE: Final = 8
LARGEST_SLICE: Final = 4096
OnDrift = Literal["report", "warn", "raise", "repair"]
OnInvalid = Callable[[InvalidItem], object]


@frozen
class _Sent:
    """A page that was requested; *ahead*: before it was needed."""

    task: asyncio.Task[Response | Exception]
    ahead: bool


@define(eq=False)
class ListReader(Generic[T]):
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
        one_call: Whether a single page is wanted, as one call among others: it is then repeated
            as often as the retry policy says, and not for as long as its timeout lasts.
        timeout: Seconds to wait for a page; None for no limit.
        report: Statistics so far.
        items: The current page and its items; None before the first.
        held_at: Where `position` stays while a page or chunk is being filled; None between two.
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
    held_at: Position | None = field(init=False, default=None)
    _stopped_at: Position | None = field(init=False, default=None)
    """Where the reading ended; None until then."""
    _sent: dict[PageRequest, _Sent] = field(init=False, factory=dict)
    _deadline: float = field(init=False, default=math.inf)
    """When the head is no longer waited for, on the loop's clock."""
    _began: float | None = field(init=False, default=None)
    _last_pause: float = field(init=False, default=0.0)
    _slice: int = field(init=False, default=FIRST_SLICE)
    """Items in the next slice, adapted to how long the last one took."""
    _handed: int = field(init=False, default=0)
    _handed_at: float = field(init=False, default=0.0)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """End the reading with the block: no task is left, and an error says where to go on."""
        try:
            yield
        except IntegrationError as error:
            error.cursor = error.cursor or self.cursor
            raise
        finally:
            self._stopped_at = self.position
            self.walk.offered -= self.items.left if self.items else 0
            self.items = None
            if cancelled := self._cancel(list(self._sent)):
                await asyncio.wait(cancelled)

    # Items

    async def more(self) -> Iterator[T] | None:
        """Return an iterator over the next few items; None at the end of the list.

        The iterator decodes each item when it is taken. Pass any exception it raises to `unfit`.
        """
        self._end_slice()
        while not self._left:
            if not await self._open_next():
                return None
        await self._breathe()
        return self._next_slice()

    async def next_page(self) -> list[T] | None:
        """Open the next page and return all its items; None at the end of the list."""
        self.held_at = self.position
        if not await self._open_next():
            return None
        items: list[T] = []
        while self._left:
            self.collect(items, self._next_slice())
            self._end_slice()
            await self._breathe()
        self.held_at = None
        return items

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
        if self.walk.limit is not None:
            self.walk.limit += 1  # it counts items that fit
        invalid.cursor = self.cursor
        self.report.invalid += 1
        if self.on_invalid is None:
            raise invalid from error
        self.on_invalid(invalid)

    @property
    def _left(self) -> int:
        """Number of items of the current page that are still to be handed out."""
        if self.items is None:
            return 0
        if self.walk.limit is None:
            return self.items.left
        return min(self.items.left, self.walk.limit - self._count())

    async def _breathe(self) -> None:
        """Let the event loop run if it has not run for half of `SLICE_SECONDS`."""
        now = self.clock()
        if self._began is None:
            self._began = self._last_pause = now
        if now - self._last_pause >= SLICE_SECONDS / 2:
            await asyncio.sleep(0)
            self._last_pause = self.clock()

    def _next_slice(self) -> Iterator[Any]:
        assert self.items is not None  # noqa: S101  # _left said so
        self._handed, self._handed_at = min(self._slice, self._left), self.clock()
        return islice(self.items.values, self._handed)

    def _end_slice(self) -> None:
        """Choose the size of the next slice by how long it took to take the last one."""
        took = self.clock() - self._handed_at
        if self._handed and took > 0:
            fitting = int(self._handed * SLICE_SECONDS / took)
            self._slice = max(SMALLEST_SLICE, min(fitting, 2 * self._slice, LARGEST_SLICE))
        self._handed = 0

    # Where it is

    @property
    def position(self) -> Position:
        """The place after the last item handed out."""
        known = self._stopped_at or self.held_at
        return known or self.walk.position(self.items.taken if self.items else 0)

    @property
    def cursor(self) -> str:
        """`position` as a string."""
        return write_cursor(self.walk.request, self.position)

    @property
    def progress(self) -> ListProgress:
        """How far the reading has got, and how fast it is."""
        walk, done = self.walk, self.position.done
        total = walk.total
        if total is not None and walk.limit is not None:
            total = min(total, walk.start.done + walk.limit)
        elapsed = 0.0 if self._began is None else self.clock() - self._began
        rate = self._count() / elapsed if elapsed > 0 else 0.0
        left = None if total is None else max(total - done, 0)
        eta = left / rate if left is not None and rate else None
        return ListProgress(done=done, total=total, rate=rate, eta=eta)

    def current_report(self) -> ListReport:
        """Return a copy of the report as of now."""
        items = self._count() - self.report.invalid
        return evolve(self.report, items=items, drift=[*self.report.drift])

    def _count(self) -> int:
        return self.walk.offered - (self.items.left if self.items else 0)

    # Pages

    async def _open_next(self) -> bool:
        """Make the next page the current one; False at the end of the list."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + (math.inf if self.timeout is None else self.timeout)
        while (head := self.walk.head) is not None:
            self._send(waiting=True)
            await self._breathe()  # requests leave when the event loop runs
            sent = self._sent[head]
            response = await self._answer(head, sent)
            if response is not None:
                if self._open(response, await self._read(response, head)):
                    return True
                self._deadline = loop.time() + (math.inf if self.timeout is None else self.timeout)
        return self._at_the_end()

    def _send(self, *, waiting: bool) -> None:
        """Request the pages that the walk wants now; all but an awaited one at low priority."""
        loop = asyncio.get_running_loop()
        for wanted in self.walk.to_fetch(waiting=waiting):
            awaited = waiting and wanted is self.walk.head
            request = evolve(
                self.walk.request,
                params=wanted.params,
                raw_query=wanted.query,
                priority=self.walk.request.priority if awaited else Priority.PREFETCH,
            )
            patience = None
            if awaited and self.timeout is not None and not self.one_call:
                patience = max(self._deadline - loop.time(), 0.0)
            task = loop.create_task(self._fetch(wanted, request, patience))
            self._sent[wanted] = _Sent(task, ahead=not awaited)

    async def _fetch(
        self, wanted: PageRequest, request: Request, patience: float | None
    ) -> Response | Exception:
        """Return the answer; an error is not raised, since nobody may await the task."""
        try:
            response = check(request, await self.fetch(request, patience=patience))
        except Exception as error:
            self.walk.failed(wanted)
            self.report.requests += error.attempts if isinstance(error, IntegrationError) else 1
            return error
        self.walk.arrived(wanted, response.size)
        self.report.requests += response.attempts
        self.report.waits += response.waited
        return response

    async def _answer(self, head: PageRequest, sent: _Sent) -> Response | None:
        """Return the answer for the page *head*; None if the walk has another head, or again."""
        try:
            outcome = await sent.task
        except asyncio.CancelledError:
            if current_task_cancelled():
                raise
            self.walk.failed(head)  # somebody else has cancelled it
            return None
        finally:
            del self._sent[head]
        if isinstance(outcome, Response):
            return outcome
        if isinstance(outcome, NotFound | BadRequest) and self.walk.skip_head():
            return None
        # A page that was requested ahead, at low priority, may have failed only for that reason:
        # it is requested once more.
        if sent.ahead and asyncio.get_running_loop().time() < self._deadline:
            return None
        raise _advising(outcome, self._size_of(head))

    def _size_of(self, head: PageRequest) -> int:
        return number_of(dict(head.params).get("pageSize", "")) or 1

    def _cancel(self, pages: Iterable[PageRequest]) -> list[asyncio.Task[Response | Exception]]:
        tasks = [self._sent.pop(wanted).task for wanted in pages]
        for task in tasks:
            task.cancel()
        return tasks

    def _open(self, response: Response, page: RawPage) -> bool:
        """Make *page* the current page; False if the walk cannot use it."""
        before = self.items.page if self.items else None
        total = self.walk.total
        opened = self.walk.opened(page, response.size, self.clock())
        self._cancel(self._sent.keys() - self.walk.pages)
        if opened is not None:
            shown, skip = opened
            self.items = PageItems.of(shown, self.reader, skip)
            self.report.pages += 1
            self._send(waiting=False)
            if self.report.pages == 1:
                warn_if_legacy(self.walk.request, self.walk.request.replacement)
        looked_again = opened is None or 0 < page.count <= opened[1]
        if self.watch is not None and not looked_again:
            self.walk.notes += self.watch.compare(before, page, total)
        self._tell_drift()
        return opened is not None

    async def _read(self, response: Response, head: PageRequest) -> RawPage:
        body = response.body  # for 10 MB, joining the pieces and splitting take 6 ms each
        await self._breathe()
        try:
            return self.reader.open(body, extra=self.want_extra)
        except MalformedResponse as error:
            request = self.walk.request
            which = f" for page {head.number}" if head.number else ""
            raise MalformedResponse(
                f"{request} answered {response.status}{which}, but {error}{not_json(response)}",
                status=response.status,
                **request.facts,
                attempts=response.attempts,
            ) from None

    def _at_the_end(self) -> bool:
        if self.walk.problem is not None and not self.walk.satisfied:
            raise self.walk.problem
        if self.watch is not None and not self.walk.satisfied:
            number = self.items.page.number if self.items else None
            done = self.walk.start.done + self._count()
            self.walk.notes += shortfall(done, self.walk.total, number)
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
                changed = ResultSetChanged(
                    f"{text}; the list changed while it was read",
                    page=drift.page,
                    **self.walk.request.facts,
                )
                # With the new total, or whoever goes on there would be told the same again.
                place = evolve(self.position, total=self.walk.total)
                changed.cursor = write_cursor(self.walk.request, place)
                raise changed


def _advising(error: Exception, size: int) -> Exception:
    """Return *error*; where a smaller page may do, its message says how to go on with one."""
    gateway = isinstance(error, ApiError) and scope_of(error.status) is Scope.GATEWAY
    too_much = gateway or isinstance(error, AnswerLost | ResponseTooLarge)
    if too_much and size > 1:
        how = f"list(cursor=error.cursor, page_size={size // 2}) goes on in smaller pages"
        error.args = (f"{error} If the page is too large, {how}.",)
    return error
