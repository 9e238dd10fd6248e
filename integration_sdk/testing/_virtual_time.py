"""Virtual time: an event loop whose clock jumps instead of sleeping.

Instead of sleeping until the next timer, the loop moves its clock to that timer and goes on at
once, so a test of three hours takes only as long as its work, and sees the same times in every run.

Real sockets keep working, since server and client live in the same loop: on Linux a byte written
to a loopback socket is readable before ``send`` returns, so "nothing is readable now" means that
nothing is on its way. What the loop cannot see is counted instead, and the clock stands still until
it is done: a connection attempt, a name look-up, any job of `run_in_executor` or
`asyncio.to_thread`. Timers do not wait for a thread of your own, a subprocess or a remote host.

A test that waits for something that never happens gets `VirtualTimeStalled`, after *patience* real
seconds or at the *horizon*; the message says which task waits where.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
TEN_YEARS: Final = 10 * 365 * 86_400.0


class VirtualTimeStalled(RuntimeError):
    """The test waits for something that never happens; the message names each task and its line."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop that never sleeps; `time` is virtual seconds since its start.

    Args:
        patience: Real seconds to wait for work outside the loop, or for anything if no timer is
            set, before `VirtualTimeStalled` is raised.
        horizon: Virtual seconds after which it is also raised.
    """

    def __init__(self, *, patience: float = 10.0, horizon: float = TEN_YEARS) -> None:
        self._now = 0.0
        self._outside: Counter[str] = Counter()
        super().__init__(_JumpingSelector(self, patience, horizon))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds
        # asyncio runs timers before time() + 1 ns, which after half a year is time() as a float.
        if self._now + 1e-9 == self._now:
            self._now = math.nextafter(self._now, math.inf)

    @property
    def waits_for(self) -> str:
        """What the clock waits for outside the loop, such as ``2 x thread``; may be empty."""
        return ", ".join(f"{count} x {what}" for what, count in self._outside.items() if count)

    @contextmanager
    def _time_stands_still(self, what: str) -> Iterator[None]:
        self._outside[what] += 1
        try:
            yield
        finally:
            self._outside[what] -= 1

    # Below: asyncio's methods that wait for something outside the loop; each is counted.

    async def sock_connect(self, sock: Any, address: Any) -> None:
        with self._time_stands_still("connection attempt"):
            await super().sock_connect(sock, address)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._outside["thread"] += 1
        future.add_done_callback(lambda _: self._outside.subtract(["thread"]))
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Join the default threads; the clock waits, or it would jump to the time limit."""
        with self._time_stands_still("thread shutdown"):
            await super().shutdown_default_executor(*args, **kwargs)


class _JumpingSelector(selectors.DefaultSelector):
    """Polls without waiting; if nothing is ready, it advances the loop's clock instead."""

    def __init__(self, loop: VirtualTimeLoop, patience: float, end: float) -> None:
        super().__init__()
        self._loop = loop
        self._patience = patience
        self._end = end

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None or self._loop.waits_for:
            return super().select(self._patience) or self._give_up(
                f"{self._patience:g} real seconds passed while the loop waited for "
                f"{self._loop.waits_for or 'nothing: no timer is set and no socket is readable'}"
            )
        if self._loop.time() > self._end:
            self._give_up("the horizon was reached, so some timer repeats for ever")
        self._loop.jump(timeout)
        return []

    def _give_up(self, cause: str) -> NoReturn:
        tasks = "".join(f"\n  {_describe(task)}" for task in asyncio.all_tasks(self._loop))
        raise VirtualTimeStalled(
            f"at virtual time {self._loop.time():g} {cause}. Tasks:{tasks or ' none'}"
        )


def _describe(task: asyncio.Task[Any]) -> str:
    """Return the task's name and the lines it waits at, outermost first."""
    lines: list[str] = []
    coroutine: Any = task.get_coro()
    while frame := getattr(coroutine, "cr_frame", None):
        lines.append(f"{coroutine.__qualname__}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return f"{task.get_name()} at {' > '.join(lines)}"


def run_virtual(main: Coroutine[Any, Any, T], **options: float) -> T:
    """Run *main* on a fresh `VirtualTimeLoop` and return its result, as `asyncio.run` does.

    For scripts and for property tests, where each example needs a clock of its own::

        async def nap() -> float:
            await asyncio.sleep(3600)
            return asyncio.get_running_loop().time()

        assert run_virtual(nap()) == 3600

    Args:
        main: What to run.
        options: Those of `VirtualTimeLoop`.
    """
    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, **options)) as runner:
        return runner.run(main)
