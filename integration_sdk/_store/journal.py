"""Pushes on record, once for both databases: grouped writes, claims, heartbeats.

Each row has a *holder*, the process that sends it, polls it and searches for it. A write names the
version before it; so a process that lost a row (it was frozen, and another claimed the row) is
refused by the same rule as one that has read an old version. A file is a database with one worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from attrs import define, field

from integration_sdk._store.row import Row, folded, from_document, to_document, to_text
from integration_sdk._store.sql import Database, Statement, Texts, texts
from integration_sdk.errors import IntegrationError, JournalError, fresh_copy

logger = logging.getLogger("integration_sdk.store")

_Group = list[tuple[Row, asyncio.Future[Row]]]
GROUP: Final = 1_000
"""Rows of one transaction, at most; and settled rows that are known for a while."""


@define(eq=False)
class Journal:
    """The rows of one scope, for one coordinator; see `Store._lend`.

    Attributes:
        holder: Names this worker in rows; another one after each opening.
        lease: Seconds after its last heartbeat for which a worker's rows are its own.
    """

    _database: Database
    scope: str = "default"
    lease: float = 15.0
    holder: str = field(init=False)
    _texts: Texts = field(init=False)
    _waiting: _Group = field(init=False, factory=list)
    _to_tell: set[str] = field(init=False, factory=set)
    _settled: deque[Row] = field(init=False, factory=lambda: deque(maxlen=GROUP))
    _writing: asyncio.Task[None] | None = field(init=False, default=None)
    _beat_at: float | None = field(init=False, default=None)
    _claims_from: float = field(init=False, default=0.0)
    _connections: int = field(init=False)  # when all that is known was on record

    def __attrs_post_init__(self) -> None:
        self.holder = f"{socket.gethostname()} {os.getpid()} {uuid4().hex}"
        self._texts = texts(self._database.words)
        self._connections = self._database.connections

    @property
    def shared(self) -> bool:
        """Whether other processes may act on the rows, too."""
        return self._database.shared

    # Writing

    def write(self, row: Row) -> asyncio.Future[Row]:
        """Record a new row (version 0), or the next version of one.

        What is asked for in one turn of the loop, or while the database is busy, is one
        transaction. Cancelling the future does not undo the write.

        Returns:
            *row* itself if it is on record, else what is: another row that has its reference; or
            the row as someone else has taken it further; or, if that is the version before, the
            row unchanged, because its key belongs to another row.

        Raises:
            StoreUnavailable: It is not known whether it was recorded.
            JournalError: It was not. In either case, what it describes must not be sent.
        """
        written: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, written))
        self._start()
        return written

    def tell(self, text: str) -> None:
        """Tell the other workers of the scope; it may get lost. Nothing to do for a file."""
        if self.shared:
            self._to_tell.add(f"{self.holder}\n{self.scope}\n{text}")
            self._start()

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call *heard* with what other workers tell, from now on."""

        def told(text: str) -> None:
            holder, scope, told = text.split("\n", 2)
            if scope == self.scope and holder != self.holder:
                heard(told)

        self._database.listen(told)

    def _start(self) -> asyncio.Task[None]:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="integration_sdk writer")
        return self._writing

    async def _write(self) -> None:
        group = _Group()
        try:
            await asyncio.sleep(0)  # what the same turn of the loop brings goes along
            while self._waiting or self._to_tell:
                group, self._waiting = _group(self._waiting)
                try:
                    answers = await self._answers([row for row, _ in group])
                except IntegrationError as error:
                    _fail(group, error)
                else:
                    for (_, written), answer in zip(group, answers, strict=True):
                        if not written.done():
                            written.set_result(answer)
                told, self._to_tell = self._to_tell, set()
                if told:
                    with suppress(JournalError):
                        await self._run(self._texts.tell, _json([*told]))
        except BaseException as error:
            _fail([*group, *self._waiting], JournalError(f"the writer has ended: {error!r}"))
            self._waiting = []
            raise

    async def _answers(self, rows: Sequence[Row]) -> list[Row]:
        new, later = [one for one in rows if not one.version], [one for one in rows if one.version]
        done = await self._put(new, later, self._texts.update)
        refused = [row for row in rows if row.id not in done]
        if self.shared:
            self._settled.extend(row for row in rows if row.is_done and row.id in done)
        if not refused:
            return [*rows]
        references = [row.reference for row in refused if row.reference is not None]
        there = await self.rows([row.id for row in refused], references)
        found = {row.reference: row for row in there if row.reference is not None}
        found |= {row.id: row for row in there}
        on_record = {row.id: found.get(row.id) or found.get(row.reference or "") for row in refused}
        if back := [row for row in refused if _is_behind(on_record[row.id], row)]:
            done |= await self._restore(back)
        # A new row that is on record as it is was written before, without an answer.
        done |= {row.id for row in refused if on_record[row.id] == row}
        return [row if row.id in done else on_record[row.id] or row for row in rows]

    async def _put(self, new: Sequence[Row], later: Sequence[Row], update: str) -> set[str]:
        """Add rows and write next versions in one transaction; return the ids of those written."""
        work = list[Statement]()
        for text, rows in ((self._texts.insert, new), (update, later)):
            if rows:
                work.append((text, (_json([_columns(row) for row in rows]), self.scope)))
        again = [row for row in later if row.key is None and row.earlier]
        keys = [{"key": key, "id": row.id} for row in again for key in row.earlier_keys]
        if keys:
            work.append((self._texts.keep_keys, (_json(keys), self.scope)))
        found = await self._database.run(work) if work else []
        return {row_id for answer in found for (row_id,) in answer}

    # A store that went back

    @property
    def reconnected(self) -> bool:
        """Whether the database was lost since the last `restore`, and may have gone back."""
        return self._database.connections != self._connections

    async def restore(self, rows: Collection[Row]) -> None:
        """Write again, as known here, what the store lacks or has in an older version.

        A database may lose its last commits when it fails over to a standby. Worth calling when
        it has `reconnected`, with all rows that are held and on record; harmless at any time. The
        last rows that this worker has settled are written again as well.

        Raises:
            JournalError: The store cannot be reached; call it again later.
        """
        known = sorted([*rows, *self._settled], key=lambda row: row.version)
        every = [*{row.id: row for row in known}.values()]
        connections = self._database.connections
        for first in range(0, len(every), GROUP):
            await self._restore(every[first : first + GROUP])
        self._connections = connections

    async def _restore(self, rows: Sequence[Row]) -> set[str]:
        done = await self._put(rows, rows, self._texts.restore)
        if done:
            logger.error(
                "%d pushes were missing on record, or older than known here, and were written "
                "again: a write has failed before, or the store went back to an earlier state",
                len(done),
            )
        return done

    # Reading

    async def rows(
        self, ids: Iterable[str] = (), references: Iterable[str] = (), keys: Iterable[str] = ()
    ) -> list[Row]:
        """Return the rows that have one of these, in the order in which they were added."""
        names = _json([*ids]), _json([*references]), _json([folded(key) for key in keys])
        return read_rows(await self._run(self._texts.by_name, self.scope, *names))

    async def everything(self) -> list[Row]:
        """Return all rows, in the order in which they were added."""
        found, last = list[Row](), 0
        while portion := await self._run(self._texts.all_rows, self.scope, last):
            found += read_rows(portion)
            last = portion[-1][-1]
        return found

    async def held(self) -> list[Row]:
        """Return the rows that are this worker's on record, and not done."""
        return read_rows(await self._run(self._texts.held, self.scope, self.holder))

    async def unexplained(self, company: str) -> list[Row]:
        """Return the rows of a company that may own pushes which nobody has identified."""
        return read_rows(await self._run(self._texts.unexplained, self.scope, company))

    async def owners(self, keys: Collection[str]) -> set[str]:
        """Return which of these push keys belong to a row, or to an earlier attempt of one."""
        if not keys:
            return set()
        by_column = {folded(key): key for key in keys}
        found = await self._run(self._texts.owners, self.scope, _json([*by_column]))
        return {by_column[key] for (key,) in found}

    # Workers

    async def beat(self) -> int:
        """Stay alive for another lease, and return how many workers of the scope are.

        A worker that was silent for two beats does not claim for a lease: after an outage of the
        database, all workers beat before any takes another's rows.
        """
        if not self.shared:
            return 1
        ((others,),) = await self._run(self._texts.beat, self.holder, self.scope, self.lease)
        now = asyncio.get_running_loop().time()
        if self.silent_for > 2 * self.beat_every:
            self._claims_from = now + self.lease
        self._beat_at = now
        return 1 + int(others)

    @property
    def beat_every(self) -> float:
        """Seconds between two heartbeats."""
        return self.lease / 3

    @property
    def silent_for(self) -> float:
        """Seconds since the last heartbeat; 0 before the first one."""
        now = asyncio.get_running_loop().time()
        return 0.0 if self._beat_at is None else now - self._beat_at

    async def claim(self) -> list[Row]:
        """Take over rows whose holder is dead: for a file, all that an earlier process left.

        Returns:
            Up to 500 of them, each in its next version; call it again until there are none.
        """
        if asyncio.get_running_loop().time() < self._claims_from:
            return []
        found = await self._run(self._texts.claim, self.scope, self.holder)
        return read_rows(sorted(found, key=lambda one: one[-1]))

    async def close(self) -> None:
        """End what is being written, and leave the rows to others at once."""
        while self._waiting or (self._writing is not None and not self._writing.done()):
            await asyncio.wait([self._start()])
        if self.shared:
            try:
                await self._run(self._texts.bury, self.holder)
            except JournalError as error:
                logger.warning("other workers go on with this one's pushes later: %s", error)

    async def _run(self, text: str, *values: object) -> list[Any]:
        (found,) = await self._database.run([(text, values)])
        return found


def read_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Return the rows of what a database has read.

    Raises:
        JournalError: One of them is damaged.
    """
    names = "document", "state", "ghosts", "version", "holder", "payload"
    try:
        return [from_document(**dict(zip(names, one, strict=False))) for one in found]
    except (msgspec.MsgspecError, ValueError) as error:
        raise JournalError(f"The store has a row that cannot be read: {error}.") from error


def _group(waiting: _Group) -> tuple[_Group, _Group]:
    """Split what waits into what one transaction may have, and the rest.

    A statement updates a row once, and does not see the keys that it writes itself.
    """
    group, rest, seen = _Group(), _Group(), set[tuple[str, str | None]]()
    for one in waiting:
        row = one[0]
        names = {("id", row.id), ("key", row.key and folded(row.key))} - {("key", None)}
        (rest if len(group) == GROUP or names & seen else group).append(one)
        seen |= names
    return group, rest


def _fail(group: _Group, error: IntegrationError) -> None:
    for _, written in group:
        if not written.done():
            written.set_exception(fresh_copy(error))


def _is_behind(found: Row | None, row: Row) -> bool:
    """Return whether the record has lost *row*, or a version of it that was written before."""
    return found is None or (found.id == row.id and found.version < row.version - 1)


def _columns(row: Row) -> dict[str, object]:
    names = "id", "company", "reference", "state", "ghosts", "holder", "version"
    return {name: getattr(row, name) for name in names} | {
        "key": row.key and folded(row.key),
        "document": to_document(row),
        "payload": to_text(row),
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
