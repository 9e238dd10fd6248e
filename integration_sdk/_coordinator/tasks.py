"""Work beside the callers', which the end of the block waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")


class Tasks(set[asyncio.Task[Any]]):
    """Tasks that are running; each leaves when it ends."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do *work* beside."""
        task = asyncio.create_task(work, name="integration_sdk push")
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Do *work*, to its end even if whoever awaits it is cancelled meanwhile."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Tell of an error that nobody awaits any more."""
    if not task.cancelled() and (error := task.exception()):
        logger.error("what a cancelled caller had begun failed: %r", error)
