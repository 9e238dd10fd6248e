"""The asyncio interface of a journal file: one thread does the work, in batches.

Everything asked for while the thread is busy, or in the same turn of the loop, becomes one errand:
one transaction for all its commits, one hop to the thread and back. After syncs, hops are the
greatest cost of a journal. (To wait on purpose for more to join is no gain: measured.)
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

from attrs import define, field, frozen

from integration_sdk._store.file import UNSETTLED, JournalFile
from integration_sdk._store.reading import Filter
from integration_sdk._store.row import Intent, Owner
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import JournalError

_P = ParamSpec("_P")
_T = TypeVar("_T")


@frozen
class _Errand:
    """A batch of work for the thread; each part has a future that waits for it.

    The error of a commit is its answer, so that a refused commit does not stop the others.
    """

    commits: list[tuple[tuple[Intent, ...], asyncio.Future[None]]] = field(factory=list)
    questions: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = field(factory=list)

    @property
    def parts(self) -> list[tuple[Any, asyncio.Future[Any]]]:
        """All that was asked for."""
        return [*self.commits, *self.questions]

    def run(self, file: JournalFile) -> list[Any]:
        """Return an answer or an error for each part."""
        refused = file.write([rows for rows, _ in self.commits]) if self.commits else []
        return [*refused, *(_answer(question) for question, _ in self.questions)]

    def tell(self, answers: Sequence[Any]) -> None:
        """Set the answers, except on futures that were cancelled."""
        for (_, waiting), answer in zip(self.parts, answers, strict=True):
            if waiting.done():
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)

    def fail(self, failure: BaseException | None) -> None:
        """Fail all futures that are still waiting."""
        error = JournalError(f"The journal's writer broke: {failure!r}")
        self.tell([error] * len(self.parts))


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception as error:  # raised to the caller
        return error


def _close_all(opened: list[JournalFile]) -> None:
    for file in opened:
        file.close()


@define(eq=False)
class SqliteJournal:
    """Intents in a SQLite file that survives crashes and power loss; see ``_file``.

    Created by `open`; belongs to the event loop and process it was opened in.
    """

    durable: ClassVar[bool] = True

    _path: Path
    _thread: ThreadPoolExecutor
    _file: JournalFile
    _loop: asyncio.AbstractEventLoop
    _references: Filter
    """Those on file, and those that are being committed."""
    _process: int = field(factory=os.getpid)
    _waiting: _Errand | None = None
    _working: asyncio.Future[list[Any]] | None = None
    _closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> "SqliteJournal":
        """Open or create a journal file and check all of it.

        Args:
            path: The file. ``-lock`` is created beside it, ``-wal`` and ``-shm`` while it is open.

        Raises:
            JournalError: The file is somebody else's, in use, not a journal, or damaged.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        opened: list[JournalFile] = []

        def opening() -> None:
            opened.append(JournalFile(Path(path)))

        try:
            await loop.run_in_executor(thread, opening)
        except BaseException:  # perhaps cancelled while the thread is still busy
            closing = loop.run_in_executor(thread, _close_all, opened)
            thread.shutdown(wait=False)
            await to_the_end(closing)
            raise
        return cls(Path(path), thread, opened[0], loop, opened[0].references)

    @property
    def store_payloads(self) -> bool:
        """Whether a record is kept until its push is final."""
        return self._file.store_payloads

    @store_payloads.setter
    def store_payloads(self, value: bool) -> None:
        self._file.store_payloads = value

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none; return once they are.

        Cancelling the caller does not undo the commit, and it ends after that. If its error is
        the cancellation, the rows are written.

        Raises:
            KeyClaimed: One of their push keys belongs to another intent.
            JournalError: The rows were not written; what they describe must not be sent.
        """
        written: asyncio.Future[None] = self._loop.create_future()
        self._errand().commits.append((tuple(rows), written))
        for row in rows:
            if row.reference is not None:
                self._references.add(row.reference)
        await to_the_end(written)

    def _errand(self) -> _Errand:
        """Return the errand that the thread will do next."""
        self._check_usable()
        if self._waiting is None:
            self._waiting = _Errand()
            if self._working is None:
                self._loop.call_soon(self._work)
        return self._waiting

    def _work(self) -> None:
        errand, self._waiting = self._waiting, None
        if errand is not None:
            self._working = self._loop.run_in_executor(self._thread, errand.run, self._file)
            self._working.add_done_callback(partial(self._worked, errand))

    def _worked(self, errand: _Errand, working: asyncio.Future[list[Any]]) -> None:
        self._working = None
        if working.cancelled() or working.exception():
            errand.fail(None if working.cancelled() else working.exception())
        else:
            try:
                errand.tell(working.result())
            except Exception as crash:  # nobody hears of what a callback raises
                errand.fail(crash)
        if self._waiting is not None:
            self._loop.call_soon(self._work)

    async def rows(
        self, *, reference: str | None = None, intent: str | None = None
    ) -> list[Intent]:
        """Return all rows, or those of a reference or an intent, in the order of acceptance."""
        if intent is not None:
            return await self._ask(self._file.read, "id = ?", intent)
        if reference is None:
            return await self._ask(self._file.read)
        self._check_usable()
        if reference not in self._references:  # a trip to the thread takes as long as a commit
            return []
        return await self._ask(self._file.read, "reference = ?", reference)

    async def claim(self) -> list[Intent]:
        """Return every row that is not settled."""
        return await self._ask(self._file.read, UNSETTLED)

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner: its intent's id, by key."""
        return await self._ask(self._file.owners, keys) if keys else {}

    async def bind(self, owner: Owner) -> Owner:
        """Bind the file to *owner* if it has none; return whose it is."""
        return await self._ask(self._file.bind, owner)

    async def _ask(self, question: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
        answer: asyncio.Future[_T] = self._loop.create_future()
        self._errand().questions.append((partial(question, *args, **named), answer))
        return await answer

    def _check_usable(self) -> None:
        if self._closing is not None:
            raise JournalError(f"The journal {self._path} is closed.")
        if self._process != os.getpid() or self._loop is not asyncio.get_running_loop():
            raise JournalError(
                f"The journal {self._path} was opened in another process or event loop: "
                "open it where it is used."
            )

    async def close(self) -> None:
        """Finish pending work, checkpoint the WAL and unlock the file.

        If the caller is cancelled, it ends after that: the file is closed in any case.
        """
        if self._closing is None:
            self._check_usable()
            self._work()  # the thread does one after the other
            self._closing = self._loop.run_in_executor(self._thread, self._file.close)
            self._thread.shutdown(wait=False)
        await to_the_end(self._closing)
