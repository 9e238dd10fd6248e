"""Crash tests of coroutines in virtual time: they are abandoned, as by a process that dies.

A life is a task and all that it starts, known by a context variable: tasks, timers, connections.
Once it is over, the loop passes over what it would do next. Nothing is cancelled, and no
``finally`` ever runs. Its connections are cut, and its open files below its folder become
``/dev/null``, which frees their locks and loses what is in their buffers.

Each step of a life takes `STEP` seconds, so that a kill can come between any two.

What this cannot show: a kill comes where something is awaited, never within a step; what a thread
has begun, it ends; subprocesses, listening sockets and SQLite databases of foreign threads stay
open; globals of the process keep their values.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, wait
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from ctypes import py_object, pythonapi
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Final, TypeVar, TypeVarTuple

from attrs import Factory, define, evolve

from integration_sdk.sandbox import Sandbox
from integration_sdk.testing._crash_findings import CrashReport, judge
from integration_sdk.testing._crashes import Begin, CrashPlan, play, program, where
from integration_sdk.testing._virtual_time import VirtualTimeLoop
from integration_sdk.testing._written import is_sqlite

T = TypeVar("T")
H = TypeVar("H", bound=asyncio.Handle)
Ts = TypeVarTuple("Ts")
Main = Callable[[], Coroutine[Any, Any, object]]
STEP: Final = 1e-5
DAY: Final = 86_400.0


@define(eq=False)
class CoroutineLife:
    """A coroutine under way, with all that it has started.

    Attributes:
        over: Whether it was killed.
        is_dead: Whether it does nothing more, killed or at its end.
        deferred: What it would have done while it was frozen.
    """

    loop: CrashLoop
    folder: Path
    over: bool = False
    is_dead: bool = False
    is_frozen: bool = False
    deferred: list[Callable[[], object]] = Factory(list)
    sockets: list[socket] = Factory(list)
    transports: list[asyncio.Transport] = Factory(list)
    threads: set[asyncio.Future[Any]] = Factory(set)
    executors: set[Executor] = Factory(set)
    files: list[int] = Factory(list)
    tasks: set[asyncio.Task[Any]] = Factory(set)
    _ended: asyncio.Event = Factory(asyncio.Event)
    ending: str = ""

    def begin(self, main: Main) -> None:
        """Start it."""
        context = copy_context()
        context.run(_LIFE.set, self)
        task = self.loop.create_task(context.run(main), context=context)
        self.tasks.add(task)
        task.add_done_callback(self._end, context=_nobody())

    def _end(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        self.ending = "" if error is None else f"{type(error).__name__}: {error}"
        self._ended.set()

    def kill(self) -> None:
        """Let it do nothing more."""
        self.is_dead = True
        for transport in self.transports:
            transport.abort()
        self._ended.set()

    def freeze(self) -> None:
        """Put off what it does next."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self.is_frozen = False
        deferred, self.deferred = self.deferred, []
        for go_on in deferred:
            go_on()

    async def end(self) -> str:
        """Wait for its end; the tasks that it leaves are cancelled, as by ``asyncio.run``."""
        await self._ended.wait()
        how = ""
        if not self.is_dead:
            how = self.ending
            for task in self.tasks:
                task.cancel()
            if self.tasks:
                await asyncio.wait(self.tasks)
        self.kill()
        if self.threads:
            await asyncio.wait(self.threads)
        if self.over:
            _close_databases(self)
            self.files = _close_below(self.folder)
        return how


_LIFE: ContextVar[CoroutineLife | None] = ContextVar("_LIFE", default=None)


def _nobody() -> Context:
    context = Context()
    context.run(_LIFE.set, None)
    return context


def _close_below(folder: Path) -> list[int]:
    """Let each open file below *folder* be ``/dev/null``, so that who has it may still close it."""
    theirs = {
        (seen.st_dev, seen.st_ino)
        for seen in map(Path.stat, (one for one in folder.rglob("*") if not _is_of_sqlite(one)))
    }
    closed = []
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(one.name) for one in Path("/dev/fd").iterdir()]:
        with suppress(OSError):  # the one that lists them is closed by now
            seen = os.fstat(number)
            if (seen.st_dev, seen.st_ino) in theirs:
                closed.append(os.dup2(nothing, number, inheritable=False))
    os.close(nothing)
    return closed


def _is_of_sqlite(path: Path) -> bool:
    return path.name.endswith(("-wal", "-shm", "-journal")) or (path.is_file() and is_sqlite(path))


def _close_databases(life: CoroutineLife) -> None:
    """Close the SQLite databases of a life, as far as they are open in threads that are known.

    SQLite keeps books of its own of all that a process has open, so that ``/dev/null`` will not do.
    """
    folder, closing = os.path.realpath(life.folder), []
    for one in gc.get_objects():
        if issubclass(type(one), sqlite3.Connection):
            closing += [executor.submit(one.close) for executor in life.executors]
            with suppress(sqlite3.Error):  # it belongs to another thread, or is closed
                names = [file for _, _, file in one.execute("PRAGMA database_list")]
                if any(name.startswith(folder) for name in names):
                    one.close()
    wait(closing)


class CrashLoop(VirtualTimeLoop):
    """A loop in virtual time that passes over what lives that are over would do."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[CoroutineLife] = []

    def close(self) -> None:
        """Close the loop, and leave for good what was abandoned.

        Whatever is freed, cleans up: frames run their ``finally``, tasks and sessions complain. So
        it is not freed, not even at the end of the interpreter; files and threads are given back.
        """
        super().close()
        pythonapi.Py_IncRef(py_object(self.lives))
        users = Counter(executor for life in self.lives for executor in life.executors)
        for executor in (one for one, count in users.items() if count == 1):  # a life made it
            executor.shutdown()
        for life in self.lives:
            for connection in life.sockets:
                connection.close()
            for file in life.files:
                with suppress(OSError):  # what had it open was freed
                    os.close(file)

    # Below: asyncio's methods by which something is done later; what a life does, has to pass.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call *callback* soon."""
        return self._passing(super().call_soon, callback, args, context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call *callback* soon, from a thread."""
        return self._passing(super().call_soon_threadsafe, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call *callback* at a time."""
        return self._passing(partial(super().call_at, when), callback, args, context)

    def _passing(
        self,
        schedule: Callable[..., H],
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> H:
        own = copy_context() if context is None else context  # an empty one is false
        if _LIFE not in own:  # a life may give what it starts a context of its own
            own.run(_LIFE.set, _LIFE.get())
        life = own[_LIFE]
        if life is None:
            return schedule(callback, *args, context=own)

        def step() -> None:
            if life.is_dead or handle.cancelled():
                return
            if life.is_frozen:
                life.deferred.append(partial(super(CrashLoop, self).call_soon, step, context=own))
                return
            self.jump(STEP)
            callback(*args)

        handle = schedule(step, context=own)
        return handle

    # Below: what a life has beside timers.

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        """Start a task, and note whose it is."""
        task = super().create_task(*args, **options)
        if life := _LIFE.get():
            life.tasks.add(task)
            task.add_done_callback(life.tasks.discard, context=_nobody())
        return task

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect in nobody's name: the clock waits for it, also if the life is over."""
        if life := _LIFE.get():
            life.sockets.append(sock)
        await self.create_task(super().sock_connect(sock, address), context=_nobody())

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, and note whose connection it is."""
        transport, protocol = await super().create_connection(*args, **options)
        if life := _LIFE.get():
            life.transports.append(transport)
        return transport, protocol

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run *func* in a thread, and note for whom."""
        begin: Callable[[], asyncio.Future[T]] = partial(
            super().run_in_executor, executor, func, *args
        )
        future = _nobody().run(begin)  # so that the loop hears of its end in any case
        if life := _LIFE.get():
            life.threads.add(future)
            if executor is not None:
                life.executors.add(executor)
            future.add_done_callback(life.threads.discard, context=_nobody())
        return future


def crash(what: Sequence[str] | Main, plan: CrashPlan, folder: Path) -> CrashReport:
    """Crash-test a command in real time, or a coroutine function in virtual time."""
    if not callable(what):
        return asyncio.run(_judged(program(what), plan, folder))
    loop = CrashLoop()

    async def begin(sandbox: Sandbox, folder: Path) -> CoroutineLife:
        os.chdir(folder)
        os.environ.update(where(sandbox))
        life = CoroutineLife(loop, folder)
        loop.lives.append(life)
        life.begin(what)
        return life

    alone = evolve(plan, workers=1, patience=max(plan.patience, DAY))
    try:
        return loop.run_until_complete(_judged(begin, alone, folder))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _judged(begin: Begin, plan: CrashPlan, folder: Path) -> CrashReport:
    return await judge(await play(begin, plan, folder), plan)
