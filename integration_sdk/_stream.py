"""One reading of a list: fetches what the walk asks for, decodes what is handed out.

The walk decides, this carries out. Each page is a task of its own; answers wait as
bytes until it is their turn. Items leave in slices: a slice is a plain iterator, so
an item costs no task switch, and between slices the event loop gets its turn after
a millisecond or so of work.

Whatever ends a reading early (an error, a cancellation, `Stream.stop`) cancels what
is on its way. After an error the reading stands where it stood: asking again goes on.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from attrs import define, evolve, field, frozen

from integration_sdk._sansio.cursor import Position, write_cursor
from integration_sdk._sansio.drift import DriftWatch, shortfall
from integration_sdk._sansio.items import Feed, ItemReader, Sheet, collector_paused
from integration_sdk._sansio.line import Ask
from integration_sdk._sansio.report import ListReport, Progress
from integration_sdk._sansio.requests import MIB, Priority, Request
from integration_sdk._sansio.responses import Fetch, Response, check
from integration_sdk._sansio.walk import Walk
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    BadRequest,
    IntegrationError,
    InvalidItem,
    NotFound,
    PaginationError,
    ResponseTooLarge,
    ResultSetChanged,
    TooManyRequests,
)

T = TypeVar("T")
SLICE_SECONDS = 0.0015
FIRST_SLICE = 64
SMALLEST_SLICE = 8
LARGEST_SLICE = 4096
LARGE_BLOCK = 32 * MIB - 64 * 1024
"""The largest that glibc's threshold goes up to, less its own overhead."""
MOST_DRIFT = 100
"""Signs of drift that a report keeps."""
OnDrift = Literal["report", "warn", "raise", "repair"]
OnInvalid = Callable[[InvalidItem], object]
TOO_SLOW = frozenset({502, 504})
"""Statuses of a page that was too much for the service, or for a proxy before it."""


@frozen
class Answer:
    """A page's answer and the seconds that it took, waits not counted."""

    response: Response
    seconds: float


@define(eq=False)
class Stream(Generic[T]):
    """One reading of a list, from the walk's start to its end.

    Attributes:
        walk: Which pages, and where the list ends.
        reader: How pages and items are decoded.
        fetch: Carries a request.
        clock: Seconds, monotonic: for slices and progress.
        on_invalid: Gets an item that does not fit, in place of an exception.
        on_drift: What a sign of drift leads to.
        watch: Looks for such signs; None where the walk itself does.
        want_extra: Whether a page's unknown fields are wanted.
    """

    walk: Walk
    reader: ItemReader
    fetch: Fetch
    clock: Callable[[], float]
    on_invalid: OnInvalid | None = None
    on_drift: OnDrift = "report"
    watch: DriftWatch | None = None
    want_extra: bool = False
    report: ListReport = field(factory=ListReport)

    sheet: Sheet | None = field(init=False, default=None)
    _feed: Feed | None = field(init=False, default=None)
    _tasks: dict[Ask, asyncio.Task[Answer | Exception]] = field(init=False, factory=dict)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _busy: bool = field(init=False, default=False)
    _stopped_at: Position | None = field(init=False, default=None)
    _at_end: bool = field(init=False, default=False)
    _started: float | None = field(init=False, default=None)
    _turn: float = field(init=False, default=0.0)
    _handed: tuple[float, int] = field(init=False, default=(0.0, 0))
    _slice: int = field(init=False, default=FIRST_SLICE)

    # Items

    async def more(self) -> Iterator[T] | None:
        """Return the next items, some at a time; None at the end of the list.

        The iterator decodes each item when it is taken; what that raises is to be
        shown to `unfit`.
        """
        with self._one_at_a_time():
            await self._breathe()
            while not self._left:
                if not await self._open_next():
                    return None
                await self._breathe()
            return self._next_slice()

    async def next_page(self) -> list[T] | None:
        """Open the next page and return its items, all of them; None at the end of the list."""
        with self._one_at_a_time():
            if not await self._open_next():
                return None
            items: list[T] = []
            while self._left:
                await self._breathe()
                self.collect(items, self._next_slice())
            return items

    def collect(self, items: list[T], ready: Iterable[T]) -> None:
        """Append *ready* to *items*; what does not fit is judged by `unfit`."""
        while True:
            try:
                with collector_paused():
                    return items.extend(ready)
            except Exception as error:  # a model's own code may raise anything
                self.unfit(error)

    def unfit(self, error: Exception) -> None:
        """Judge an item that could not be decoded: pass it to ``on_invalid``, or raise.

        Raises:
            InvalidItem: There is no ``on_invalid``.
        """
        assert self._feed is not None  # noqa: S101  # only an open page has items to decode
        invalid = self._feed.invalid(error, self.walk.request)
        self.walk.unusable()
        invalid.cursor = self.cursor
        if self.on_invalid is None:
            self._recall()
            raise invalid from error
        self.report.invalid += 1
        self.on_invalid(invalid)

    # Where it is

    @property
    def position(self) -> Position:
        """The place behind the last item handed out."""
        if self._stopped_at is not None:
            return self._stopped_at
        return self.walk.position(self._feed.taken if self._feed else 0)

    @property
    def cursor(self) -> str:
        """`position` as a token."""
        return write_cursor(self.walk.request, self.position)

    @property
    def progress(self) -> Progress:
        """How far it has come, and how fast."""
        done, total = self.position.done, self.walk.total
        elapsed = self.clock() - self._started if self._started is not None else 0.0
        rate = self._count() / elapsed if elapsed > 0 else 0.0
        left = None if total is None else max(total - done, 0)
        return Progress(
            done=done,
            total=total,
            rate=rate,
            eta=left / rate if left is not None and rate else None,
        )

    def current_report(self) -> ListReport:
        """The report as of now."""
        self.report.items = self._count() - self.report.invalid
        return self.report

    def _count(self) -> int:
        return self.walk.offered - (self._feed.left if self._feed else 0)

    # Pages

    @property
    def _left(self) -> int:
        """Items of the current page that are still to be handed out."""
        if self._feed is None:
            return 0
        if self.walk.limit is None:
            return self._feed.left
        return min(self._feed.left, self.walk.limit - self._count())

    def _next_slice(self) -> Iterator[Any]:
        assert self._feed is not None  # noqa: S101  # _left said so
        size = min(self._slice, self._left)
        self._handed = (self.clock(), size)
        return islice(self._feed.values, size)

    async def _open_next(self) -> bool:
        """Make the next page the current one; False at the end of the list."""
        while self._stopped_at is None:
            ask = self.walk.head
            if ask is None:
                return self._at_the_end()
            self._send(waiting=True)
            try:
                if self._open(await self._answer(ask)):
                    return True
            except Exception as error:
                if not self._goes_on_after(error):
                    raise
        return False

    def _open(self, answer: Answer) -> bool:
        """Make a page of *answer*; False if it is to be asked for again, in another size."""
        body, before, total = answer.response.body, self.sheet, self.walk.total
        sheet = self.reader.open(body, extra=self.want_extra)
        skip = self.walk.opened(sheet, len(body), answer.seconds)
        self._cancel([ask for ask in self._tasks if not self.walk.is_wanted(ask)])
        if skip is not None:
            self.sheet, self._feed = sheet, Feed.of(sheet, self.reader, skip)
            self.report.pages += 1
            self._send(waiting=False)
        if self.watch is not None:
            self.walk.notes += self.watch.compare(before, sheet, total)
        self._tell_drift()
        return skip is not None

    def _goes_on_after(self, error: Exception) -> bool:
        """Whether the walk knows what to do about the head's *error*."""
        if isinstance(error, NotFound | BadRequest) and self.walk.guessing:
            self.walk.ended()
            return True
        slow = isinstance(error, ApiError) and error.status in TOO_SLOW
        if slow or isinstance(error, AnswerLost | ResponseTooLarge):
            return self.walk.too_much()
        return False

    def _at_the_end(self) -> bool:
        problem = self.walk.resume_behind_problem()
        if problem is not None:
            raise problem
        if self.watch is not None and not self._at_end and not self.walk.satisfied:
            page = self.sheet.number if self.sheet else None
            self.walk.notes += shortfall(self.position.done, self.walk.total, page)
        self._at_end = True
        self._tell_drift()
        return False

    def _tell_drift(self) -> None:
        """Report what was noticed, and warn of it or raise, as the caller wants it."""
        noted, self.walk.notes = self.walk.notes, []
        self.report.drift += noted[: MOST_DRIFT - len(self.report.drift)]
        if self.watch is not None:
            self.report.duplicates = self.watch.duplicates
        for drift in noted:
            text = f"{self.walk.request.method} {self.walk.request.path}, {drift}"
            if self.on_drift == "warn":
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            if self.on_drift == "raise":
                raise ResultSetChanged(
                    f"{text}; the list changed while it was read",
                    page=drift.page,
                    method=self.walk.request.method,
                    path=self.walk.request.path,
                )

    # Requests

    def _send(self, *, waiting: bool) -> None:
        """Ask for what the walk wants now; what is waited for goes at the caller's priority."""
        for ask in self.walk.to_fetch(waiting=waiting):
            awaited = waiting and ask is self.walk.head
            priority = self.walk.request.priority if awaited else Priority.PREFETCH
            request = evolve(self.walk.request, params=ask.params, priority=priority)
            self._loop = asyncio.get_running_loop()
            self._tasks[ask] = self._loop.create_task(self._ask(ask, request))

    async def _ask(self, ask: Ask, request: Request) -> Answer | Exception:
        """Return the answer, or the error that came instead: nobody may ever look at it."""
        began = self.clock()
        try:
            response = check(request, await self.fetch(request))
        except Exception as error:  # raised by `_answer` when its turn comes
            self.walk.line.failed(ask, throttled=isinstance(error, TooManyRequests))
            self.report.requests += error.attempts if isinstance(error, IntegrationError) else 1
            return error
        self.walk.line.arrived(ask, len(response.body))
        self.report.requests += response.attempts
        self.report.waits += response.waited
        return Answer(response, self.clock() - began - response.waited)

    async def _answer(self, ask: Ask) -> Answer:
        task = self._tasks[ask]
        ready = task.done()
        try:
            outcome = await task
        finally:
            self._tasks.pop(ask, None)
            if not ready:
                self._turn = self.clock()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    # Turns and ends

    async def _breathe(self) -> None:
        """Let the event loop run, if it had no turn for a slice's time; fit slices to that."""
        now = self.clock()
        if self._started is None:
            self._started = self._turn = now
            keep_large_blocks()
        since, size = self._handed
        if size and now > since:
            fitting = int(size * SLICE_SECONDS / (now - since))
            self._slice = max(SMALLEST_SLICE, min(fitting, 2 * self._slice, LARGEST_SLICE))
            self._handed = (now, 0)
        if now - self._turn >= SLICE_SECONDS / 2:
            await asyncio.sleep(0)
            self._turn = self.clock()

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._busy:
            raise PaginationError(
                "another task is waiting for the next item of this iteration; give each task "
                "an iteration of its own, or hand items on through an asyncio.Queue"
            )
        self._busy = True
        try:
            yield
        except IntegrationError as error:
            error.cursor = error.cursor or self.cursor
            self._recall()
            raise
        except BaseException:
            self._recall()
            raise
        finally:
            self._busy = False

    def _recall(self) -> None:
        self._cancel(list(self._tasks))
        self.walk.line.recalled()

    def stop(self) -> None:
        """End the reading where it is: cancel what is on its way, let pages go. Never raises."""
        if self._stopped_at is None:
            self._stopped_at = self.position
            self.walk.dropped(self._feed.left if self._feed else 0)
            self._feed = self.sheet = None
            self._cancel(list(self._tasks))

    def _cancel(self, asks: list[Ask]) -> None:
        """Cancel tasks; from another thread too, and silently when their loop is gone."""
        tasks = [self._tasks.pop(ask) for ask in asks]
        pending = [task for task in tasks if not task.done()]
        if not pending or self._loop is None or self._loop.is_closed():
            return
        if _running_loop() is self._loop:
            _cancel_all(pending)
        else:
            with suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(_cancel_all, pending)


@cache
def keep_large_blocks() -> None:
    """Let the C library keep the memory of large pages for the next ones.

    glibc gives blocks of this size back to the system and gets them anew, page fault by
    page fault: two thirds of what receiving a large page costs (measured). Once it has
    seen such a block freed it keeps up to 64 MiB: mallopt(3), M_MMAP_THRESHOLD,
    "dynamic". Settings of one's own (MALLOC_TRIM_THRESHOLD_) stand; others do not mind.
    """
    bytearray(LARGE_BLOCK)


def _cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
