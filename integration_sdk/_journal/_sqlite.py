"""A journal on disk, awaited: one thread writes, and commits that wait together go together."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from attrs import define, field

from integration_sdk._journal._file import JournalFile
from integration_sdk._sansio.pushing.intents import Intent, Lane, State
from integration_sdk.errors import JournalError

_P = ParamSpec("_P")
_T = TypeVar("_T")


@define
class _Waiting:
    rows: tuple[Intent, ...]
    done: asyncio.Future[None]


@define(eq=False)
class SqliteJournal:
    """Intents in a SQLite file that survives crashes and power loss; see ``_file``.

    Made by `open`; belongs to the event loop and process it was opened in.
    """

    _path: Path
    _thread: ThreadPoolExecutor
    _file: JournalFile
    _loop: asyncio.AbstractEventLoop
    _process: int = field(factory=os.getpid)
    _waiting: list[_Waiting] = field(factory=list)
    _writing: asyncio.Future[list[JournalError | None]] | None = None
    _closed: bool = False

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], *, store_payloads: bool = True
    ) -> "SqliteJournal":
        """Open or create a journal file and check all of it.

        Args:
            path: Beside it stand ``-lock``, and ``-wal`` and ``-shm`` while it is open.
            store_payloads: False keeps of each record its hash and natural key only; after a
                crash what was never sent has to be submitted again.

        Raises:
            JournalError: It is not ours to open, in use, not a journal, or damaged.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        opening = partial(JournalFile, Path(path), store_payloads=store_payloads)
        try:
            file = await loop.run_in_executor(thread, opening)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(Path(path), thread, file, loop)

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none; returns once they are.

        A cancelled caller does not take them back.

        Raises:
            KeyClaimed: A push key of theirs belongs to another intent.
            JournalError: Not written: nothing may be sent on its account.
        """
        self._check_usable()
        waiting = _Waiting(tuple(rows), self._loop.create_future())
        self._waiting.append(waiting)
        if self._writing is None:
            self._write()
        await waiting.done

    def _write(self) -> None:
        together, self._waiting = self._waiting, []
        commits = [one.rows for one in together]
        self._writing = self._loop.run_in_executor(self._thread, self._file.write, commits)
        self._writing.add_done_callback(partial(self._written, together))

    def _written(
        self, together: Sequence[_Waiting], writing: asyncio.Future[list[JournalError | None]]
    ) -> None:
        self._writing = None
        for one, error in zip(together, _results(writing, len(together)), strict=True):
            if one.done.done():
                continue
            if error is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(error)
        if self._waiting:
            self._write()

    async def rows(
        self,
        *,
        states: Collection[State] | None = None,
        ids: Collection[str] | None = None,
        references: Collection[str] | None = None,
        keys: Collection[str] | None = None,
        lane: Lane | None = None,
    ) -> list[Intent]:
        """Return the rows that meet every condition given, in the order they were accepted."""
        return await self._ask(
            self._file.read, states=states, ids=ids, references=references, keys=keys, lane=lane
        )

    async def unsettled(self) -> list[Intent]:
        """Return every row that is not settled."""
        return await self._ask(self._file.read, unsettled=True)

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner: its intent's id, by key."""
        return await self._ask(self._file.owners, keys) if keys else {}

    async def _ask(self, question: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
        self._check_usable()
        return await self._loop.run_in_executor(self._thread, partial(question, *args, **named))

    def _check_usable(self) -> None:
        if self._closed:
            raise JournalError(f"The journal {self._path} is closed.")
        if self._process != os.getpid() or self._loop is not asyncio.get_running_loop():
            raise JournalError(
                f"The journal {self._path} was opened in another process or event loop: "
                "open it where it is used."
            )

    async def close(self) -> None:
        """Finish what was handed in, fold the WAL into the file and unlock it."""
        if self._closed:
            return
        self._check_usable()
        self._closed = True
        while self._writing is not None:
            await asyncio.wait([self._writing])
        try:
            await self._loop.run_in_executor(self._thread, self._file.close)
        finally:
            self._thread.shutdown(wait=False)


def _results(
    writing: asyncio.Future[list[JournalError | None]], count: int
) -> Sequence[JournalError | None]:
    """Read the writer's answers; should it break, nobody waits for ever."""
    failure = None if writing.cancelled() else writing.exception()
    if writing.cancelled() or failure is not None:
        return [JournalError(f"The journal's writer broke: {failure!r}")] * count
    return writing.result()
