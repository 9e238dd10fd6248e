"""Background tasks, which the end of the block waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")


class Tasks(set[asyncio.Task[Any]]):
    """The running tasks; each removes itself when done."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a background task."""
        task = asyncio.create_task(work, name="integration_sdk push")
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Await *work*, which runs to its end even if the caller is cancelled."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Log the error of a task that nobody awaits any more."""
    if not task.cancelled() and (error := task.exception()):
        logger.error("a push or a decision failed after its caller was cancelled: %r", error)


def this_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a push is sent by a task")
    return task
