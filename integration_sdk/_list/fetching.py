"""The pages of one reading that are being requested, or have arrived as bytes.

Each page has its own task. A task returns an error instead of raising it, because it may never
be awaited. Pages that are no longer needed are cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from attrs import define, evolve, field, frozen

from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import FetchPage, Response, check
from integration_sdk._list.page_queue import PageRequest
from integration_sdk._list.report import ListReport
from integration_sdk._list.walk import Walk
from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import IntegrationError, TooManyRequests


@frozen
class Fetched:
    """The answer to a page's request, and how many seconds it took, waits excluded."""

    response: Response
    seconds: float


@frozen
class _OnItsWay:
    task: asyncio.Task[Fetched | Exception]
    ahead: bool
    """Whether it was requested before it was needed."""


@define(eq=False)
class Fetching:
    """Fetches the pages that a walk wants.

    Attributes:
        walk: Decides which pages to request.
        fetch: Sends a request.
        clock: Seconds, monotonic.
        report: Counts requests and waits.
        timeout: Seconds to wait for a page, in whatever sizes it is requested; None for no limit.
        patient: Whether a page that is waited for is repeated until then.
    """

    walk: Walk
    fetch: FetchPage
    clock: Callable[[], float]
    report: ListReport
    timeout: float | None = None
    patient: bool = True
    _deadline: float = field(init=False, default=math.inf)
    _on_its_way: dict[PageRequest, _OnItsWay] = field(init=False, factory=dict)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)

    def begin_waiting(self) -> None:
        """Note that the head is waited for from now on."""
        timeout = math.inf if self.timeout is None else self.timeout
        self._deadline = asyncio.get_running_loop().time() + timeout

    @property
    def seconds_left(self) -> float:
        """Seconds for which the head may still be waited for."""
        return self._deadline - asyncio.get_running_loop().time()

    def send(self, *, waiting: bool) -> None:
        """Request the pages that the walk wants now; all but an awaited one at low priority."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # an iterator may continue in another asyncio.run()
            self.recall()
            self._loop = loop
        for wanted in self.walk.to_fetch(waiting=waiting):
            awaited = waiting and wanted is self.walk.head
            priority = self.walk.request.priority if awaited else Priority.PREFETCH
            request = evolve(
                self.walk.request, params=wanted.params, raw_query=wanted.query, priority=priority
            )
            patience = None
            if awaited and self.patient and self.timeout is not None:
                patience = max(self.seconds_left, 0.0)
            task = loop.create_task(self._fetch_page(wanted, request, patience))
            self._on_its_way[wanted] = _OnItsWay(task, ahead=not awaited)

    async def _fetch_page(
        self, wanted: PageRequest, request: Request, patience: float | None
    ) -> Fetched | Exception:
        began = self.clock()
        try:
            response = check(request, await self.fetch(request, patience=patience))
        except Exception as error:  # raised when the page is awaited
            self.walk.queue.failed(wanted, throttled=isinstance(error, TooManyRequests))
            self.report.requests += error.attempts if isinstance(error, IntegrationError) else 1
            return error
        self.walk.queue.arrived(wanted, response.size)
        self.report.requests += response.attempts
        self.report.waits += response.waited
        return Fetched(response, self.clock() - began - response.waited)

    async def answer(
        self, head: PageRequest, recover: Callable[[Exception], bool]
    ) -> Fetched | None:
        """Return the answer for the page *head*; None if it was cancelled or must be sent again.

        Args:
            head: The head of the walk.
            recover: Called with an error; returns True if the walk can go on, and the error is
                then not raised.
        """
        sent = self._on_its_way.get(head)
        if sent is None:
            return None
        try:
            outcome = await sent.task
        except asyncio.CancelledError:
            if current_task_cancelled():
                raise
            self.walk.queue.failed(head, throttled=False)
            return None
        finally:
            self._on_its_way.pop(head, None)
        if isinstance(outcome, Fetched):
            return outcome
        # A page that was requested ahead, at low priority, may have failed only for that reason:
        # it is requested once more.
        if recover(outcome) or (sent.ahead and self.seconds_left > 0):
            return None
        raise outcome

    def keep_wanted(self) -> None:
        """Cancel the pages that the walk no longer wants."""
        self._cancel(self._on_its_way.keys() - self.walk.queue.pages)

    def recall(self) -> None:
        """Cancel all pages; the walk requests them again if it goes on."""
        self._cancel(list(self._on_its_way))
        self.walk.queue.recalled()

    def _cancel(self, pages: Iterable[PageRequest]) -> None:
        """Cancel tasks, from any thread; do nothing if their loop is closed."""
        tasks = [self._on_its_way.pop(wanted).task for wanted in pages]
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
