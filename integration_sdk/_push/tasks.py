"""Background tasks, which the end of the block waits for, and whose crashes are heard of.

A stranger may cancel them: a shutdown that cancels all tasks, a framework, a debugger. What a task
does about that is its own affair (see `driver`), but it has to begin for that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")


class Tasks(set[asyncio.Task[Any]]):
    """The running tasks; each removes itself when done.

    Attributes:
        crashed: Called with the exception of a task that fails, to end what depends on it.
            `PushTracker` sets it.
    """

    crashed: Callable[[BaseException], None]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a background task; in another one if that is cancelled unbegun."""
        task = asyncio.create_task(_carry(work), name="integration_sdk push")
        self.add(task)
        task.add_done_callback(partial(self._ended, work))
        return task

    def _ended(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        self.discard(task)
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
            result.add_done_callback(_log_failure)
            raise


async def _carry(work: Coroutine[Any, Any, T]) -> T:
    """Await *work*. A task that is cancelled before its first step never runs what it was given."""
    return await work


async def _report(work: Coroutine[Any, Any, T], result: asyncio.Future[T]) -> None:
    try:
        result.set_result(await work)
    except Exception as error:
        result.set_exception(error)
    except BaseException:
        result.cancel()
        raise


def _log_failure(result: asyncio.Future[Any]) -> None:
    """Log an error that nobody awaits any more."""
    if not result.cancelled() and (error := result.exception()):
        logger.error("a push or a decision failed after its caller was cancelled: %r", error)


def this_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a push is sent by a task")
    return task
