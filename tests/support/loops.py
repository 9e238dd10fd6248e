"""The event loops that users' programs run on, for journeys that must work on each of them.

``run_on_loop`` is a fixture: call it with a coroutine, in a test that is a plain function. The
journey makes its own client and service, since fixtures belong to the loop of pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def eager_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of asyncio whose tasks run at once until they first wait."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - from 3.12 on
    return loop


LOOPS: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
if sys.version_info >= (3, 12):
    LOOPS["eager"] = eager_loop


class RunOnLoop:
    """Runs journeys on one kind of event loop, each on a loop of its own.

    Args:
        make: Makes such a loop.
    """

    def __init__(self, make: LoopFactory) -> None:
        self.make = make

    def __call__(self, journey: Coroutine[Any, Any, T]) -> T:
        """Run *journey* as ``asyncio.run`` does; fail if it leaves a task behind."""
        with asyncio.Runner(loop_factory=self.make) as runner:
            result = runner.run(journey)
            left = asyncio.all_tasks(runner.get_loop())
            assert not left, f"tasks left running: {left}"
            return result


def now() -> float:
    """Return the time of the running loop, such as a virtual one."""
    return asyncio.get_running_loop().time()


async def until(true: Callable[[], object]) -> None:
    """Wait for something that another task or process is going to bring about."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0.005)
