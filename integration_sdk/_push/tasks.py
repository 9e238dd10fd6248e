"""The tasks of a coordinator: none fails unheard, and none is lost because it was cancelled."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from attrs import Factory, define

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")


def loop_time() -> float:
    """Return the time of the running loop, in seconds; it never goes back."""
    return asyncio.get_running_loop().time()


@define(eq=False)
class Tasks:
    """What runs beside the callers of a coordinator.

    Attributes:
        crashed: Called with the error of a task that failed, which is a bug.
        closing: Set once nothing more is sent or searched for.
        halted: Set once nothing more is sent, though lost pushes may still be searched for.
        running: All that have not ended.
    """

    crashed: Callable[[BaseException], None]
    closing: asyncio.Event = Factory(asyncio.Event)
    halted: asyncio.Event = Factory(asyncio.Event)
    running: set[asyncio.Task[Any]] = Factory(set)
    _is_starting: bool = False

    def halt(self) -> None:
        """Let nothing more be sent or searched for."""
        self.closing.set()
        self.halted.set()

    async def sleep(self, seconds: float, until: asyncio.Event | None = None) -> bool:
        """Wait so many seconds; return False as soon as the block is left, or *until* is set."""
        try:
            async with asyncio.timeout(seconds):
                await (until or self.closing).wait()
        except TimeoutError:
            return True
        return False

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a task, in another one if that is cancelled unbegun; hear of its crash.

        It begins once the caller waits for something, even where the loop's tasks are eager.
        """
        self._is_starting = True
        try:
            task = asyncio.create_task(self._begun(work), name="integration_sdk push")
        finally:
            self._is_starting = False
        self.running.add(task)
        task.add_done_callback(partial(self._ended, work))
        return task

    async def _begun(self, work: Coroutine[Any, Any, T]) -> T:
        """Await *work*. A task that is cancelled before its first step never runs what it got."""
        if self._is_starting:
            await asyncio.sleep(0)
        return await work

    def _ended(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        self.running.discard(task)
        if task.cancelled():
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                self.start(work)
        elif crash := task.exception():
            work.close()
            self.crashed(crash)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Await *work*, which runs to its end even if the caller is cancelled."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.start(_report(work, result))
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            result.add_done_callback(log_failure)
            raise

    async def join(self) -> None:
        """Wait until all have ended but the running one."""
        while working := {*self.running} - {asyncio.current_task()}:
            await asyncio.wait(working)

    async def end(self) -> None:
        """Cancel what still runs, which is as safe as a crash, and wait until it has ended."""
        self.halt()
        for task in self.running:
            task.cancel()
        await self.join()


async def _report(work: Coroutine[Any, Any, T], result: asyncio.Future[T]) -> None:
    try:
        result.set_result(await work)
    except Exception as error:
        result.set_exception(error)
    except BaseException:
        result.cancel()
        raise


def log_failure(result: asyncio.Future[Any]) -> None:
    """Log an error that nobody awaits any more, raised or returned."""
    error = None if result.cancelled() else result.exception() or result.result()
    if isinstance(error, Exception):
        logger.error("a push or a decision failed after its caller was cancelled: %r", error)
