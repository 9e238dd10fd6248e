"""The pages of one reading that are being requested, or have arrived as bytes.

Each is a task of its own. A task never fails: its error is a value, because nobody may
ever await it. Pages that are not needed any more are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from attrs import define, evolve, field, frozen

from integration_sdk._sansio.paging.line import Ask
from integration_sdk._sansio.paging.report import ListReport
from integration_sdk._sansio.paging.walk import Walk
from integration_sdk._sansio.requests import MIB, Priority, Request
from integration_sdk._sansio.responses import Fetch, Response, check
from integration_sdk._strays import is_cancelled
from integration_sdk.errors import IntegrationError, TooManyRequests

LARGE_BLOCK = 32 * MIB - 64 * 1024
"""The largest that glibc's threshold goes up to, less its own overhead."""


@frozen
class Fetched:
    """The answer to a page's request, and the seconds that it took, without waits."""

    response: Response
    seconds: float


@frozen
class _OnItsWay:
    task: asyncio.Task[Fetched | Exception]
    ahead: bool
    """Whether it was asked for before it was needed."""


@define(eq=False)
class Fetching:
    """Fetches the pages that a walk wants.

    Attributes:
        walk: Says which pages.
        fetch: Sends a request.
        clock: Seconds, monotonic.
        report: Counts requests and waits.
    """

    walk: Walk
    fetch: Fetch
    clock: Callable[[], float]
    report: ListReport
    _pages: dict[Ask, _OnItsWay] = field(init=False, factory=dict)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)

    def send(self, *, waiting: bool) -> None:
        """Request the pages that the walk wants now; an awaited one at the caller's priority."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # an iterator may be gone on with in another asyncio.run()
            self.recall()
            self._loop = loop
        for ask in self.walk.to_fetch(waiting=waiting):
            awaited = waiting and ask is self.walk.head
            priority = self.walk.request.priority if awaited else Priority.PREFETCH
            request = evolve(
                self.walk.request, params=ask.params, raw_query=ask.query, priority=priority
            )
            task = loop.create_task(self._ask(ask, request))
            self._pages[ask] = _OnItsWay(task, ahead=not awaited)

    async def _ask(self, ask: Ask, request: Request) -> Fetched | Exception:
        began = self.clock()
        try:
            response = check(request, await self.fetch(request))
        except Exception as error:  # raised where the page is waited for
            self.walk.line.failed(ask, throttled=isinstance(error, TooManyRequests))
            self.report.requests += error.attempts if isinstance(error, IntegrationError) else 1
            return error
        self.walk.line.arrived(ask, response.size)
        self.report.requests += response.attempts
        self.report.waits += response.waited
        return Fetched(response, self.clock() - began - response.waited)

    def is_here(self, ask: Ask) -> bool:
        """Whether the page, or its error, has arrived."""
        return self._pages[ask].task.done()

    async def answer(self, ask: Ask, goes_on: Callable[[Exception], bool]) -> Fetched | None:
        """Return the answer for the page *ask*; None if it was recalled or must be asked again.

        Args:
            ask: The head of the walk.
            goes_on: Says whether reading can go on after an error, so that it is not raised.
        """
        page = self._pages[ask]
        try:
            outcome = await page.task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self.walk.line.failed(ask, throttled=False)
            return None
        finally:
            self._pages.pop(ask, None)
        if isinstance(outcome, Fetched):
            return outcome
        # What was asked for ahead went at low priority, and may have failed for that alone:
        # it is asked for once more.
        if goes_on(outcome) or page.ahead:
            return None
        raise outcome

    def keep_wanted(self) -> None:
        """Cancel what the walk does not want any more."""
        self._cancel(self._pages.keys() - self.walk.line.asks)

    def recall(self) -> None:
        """Cancel everything; the walk asks again if it goes on."""
        self._cancel(list(self._pages))
        self.walk.line.recalled()

    def _cancel(self, asks: Iterable[Ask]) -> None:
        """Cancel tasks; from another thread too, and silently when their loop is gone."""
        tasks = [self._pages.pop(ask).task for ask in asks]
        pending = [task for task in tasks if not task.done()]
        if not pending or self._loop is None:
            return
        if _running_loop() is self._loop:
            _cancel_all(pending)
        else:
            with suppress(RuntimeError):  # the loop is closed, and its tasks with it
                self._loop.call_soon_threadsafe(_cancel_all, pending)


def _cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@cache
def keep_large_blocks() -> None:
    """Let the C library keep the memory of large pages for the next ones.

    glibc gives blocks of this size back to the system and gets them anew, page fault by
    page fault, until it has seen one freed: mallopt(3), M_MMAP_THRESHOLD, "dynamic". A
    stream's first page would teach it that too, up to the size of a page; this does so
    for several, and saves 13% of the CPU at 5,000 records a page (measured). The process
    may then hold up to 64 MiB of freed memory. Settings of its own
    (MALLOC_TRIM_THRESHOLD_) stand; other C libraries do not mind.
    """
    bytes(LARGE_BLOCK)  # never written to, so it takes no memory and no time
