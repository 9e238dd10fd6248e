"""What a store in a file promises about crashes, damage, other programs and other users."""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Store
from integration_sdk._store.row import Evidence, Lane, Row, Snapshot, State
from integration_sdk._store.rows import Rows
from integration_sdk.errors import JournalError, JournalInUse

OLD_LAYOUT = "CREATE TABLE intents (id); PRAGMA application_id = 0x70757368;"
LANE = Lane("acme", "connection", "invoices")
WAL_HEADER, FRAME_HEADER = 32, 24


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Rows]:
    async with Store(path) as store:
        yield await store.lend(base_url="http://a", dialect="document")


async def recorded(path: Path) -> list[Row]:
    """The rows of a file, as who only looks sees them."""
    return await Store(path).recorded()


def row(number: int, **facts: Any) -> Row:
    return Row(f"row-{number}", LANE, payload=b"%d" % number, **facts)


def sent(one: Row) -> Row:
    return one.to(State.SENDING, attempts=one.attempts + 1)


async def awaited(answer: Any) -> Any:
    return await answer


def commits(path: Path) -> int:
    """Return how many transactions are in the log of an open file."""
    log = path.with_name(path.name + "-wal").read_bytes()
    size = int.from_bytes(log[8:12]) + FRAME_HEADER
    frames = (log[at : at + FRAME_HEADER] for at in range(WAL_HEADER, len(log), size))
    return sum(int.from_bytes(frame[4:8]) > 0 for frame in frames if frame[8:16] == log[16:24])


# Writing


async def test_what_is_asked_in_one_turn_is_one_transaction(path: Path) -> None:
    """64 pushes that are recorded at once wait for the disk once, and for the next step again."""
    async with opened(path) as rows:
        await rows.take("acme")
        many = [row(number) for number in range(64)]
        before = commits(path)

        await asyncio.gather(*(awaited(rows.add([one])) for one in many))
        assert commits(path) == before + 1
        await asyncio.gather(*(awaited(rows.put([sent(one)])) for one in many))
        assert commits(path) == before + 2


async def test_a_refused_write_harms_no_other(path: Path) -> None:
    """Writes that go to disk together fail apart, and what was written before them stays."""
    async with opened(path) as rows:
        many = [row(number) for number in range(8)]
        await awaited(rows.add(many))
        puts = [[sent(one)] for one in many]
        puts[2] = [many[2]]  # not the next version
        puts[5] = [many[5].to(State.OPEN, key="key"), many[6].to(State.OPEN, key="key")]

        ends = await asyncio.gather(
            *(awaited(rows.put(put)) for put in puts[:6]), return_exceptions=True
        )

        assert [type(end).__name__ for end in ends if end is not None] == ["Stale", "KeyClaimed"]
        assert [one.version for one in await rows.rows()] == [1, 1, 0, 1, 1, 0, 0, 0]


async def test_who_stops_waiting_takes_nothing_back(path: Path) -> None:
    """What was handed in goes to disk, in its order."""
    async with opened(path) as rows:
        waiting = [rows.add([row(1)]), rows.put([sent(row(1))]), rows.put([sent(sent(row(1)))])]
        for one in waiting:
            assert isinstance(one, asyncio.Future)
            one.cancel()

        assert await rows.rows() == [sent(sent(row(1)))]


async def test_a_mistake_of_ours_leaves_nobody_waiting(path: Path) -> None:
    """It is an error for each who asked in that moment, and the next is heard."""
    async with opened(path) as rows:
        wrong = row(1, natural_value=object())
        ends = await asyncio.gather(
            *(awaited(rows.add([one])) for one in (wrong, row(2))), return_exceptions=True
        )
        assert [type(end) for end in ends] == [JournalError, JournalError]

        await awaited(rows.add([row(2)]))
        assert await rows.rows() == [row(2)]


async def test_a_snapshot_is_stored_once_and_dropped_when_nobody_needs_it(path: Path) -> None:
    """A batch shares one; a service that runs for months keeps those that it needs."""
    shots = [Snapshot(frozenset({f"key {number}"}), id=f"shot {number}") for number in range(200)]
    async with opened(path) as rows:
        many = [row(number) for number in range(400)]
        await awaited(rows.add(many))
        for number, shot in enumerate(shots):
            pair = [one.to(State.LOST, snapshot=shot) for one in many[2 * number : 2 * number + 2]]
            await awaited(rows.put(pair))
            done = pair if number else pair[1:]
            await awaited(rows.put([one.to(State.OPEN, key=one.id) for one in done]))
        (kept,) = await rows.rows(state=State.LOST)
        assert kept.snapshot == shots[0]
        assert 1 <= count_of(path, "snapshots") <= 70
    async with opened(path):
        assert count_of(path, "snapshots") == 1


def count_of(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        ((count,),) = db.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
    return int(count)


@pytest.mark.parametrize("state", [State.FINAL, State.REFUSED])
async def test_a_record_is_kept_until_its_push_is_settled(path: Path, state: State) -> None:
    """Afterwards its hash tells another record of the same reference from it."""
    async with opened(path) as rows:
        await awaited(rows.add([row(1, payload_hash="hash")]))
        await awaited(rows.put([one := row(1, payload_hash="hash").to(State.OPEN, key="key")]))
        assert count_of(path, "payloads") == 1
        await awaited(rows.put([one.to(state)]))

        assert count_of(path, "payloads") == 0
        assert [one.payload_hash for one in await rows.rows()] == ["hash"]


async def test_a_record_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where SQLite was built so that what is deleted stays until it is written over."""
    connect = sqlite3.connect

    def keeping(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.execute("PRAGMA secure_delete = OFF")
        return db

    monkeypatch.setattr(sqlite3, "connect", keeping)
    secret = b"an account number"
    async with opened(path) as rows:
        await rows.take("acme")
        one = Row("row-1", LANE, payload=secret * 1000)
        await awaited(rows.add([one]))
        await awaited(rows.put([sent(one)]))
        await awaited(rows.put([sent(one).to(State.REFUSED)]))

    assert secret not in path.read_bytes()


async def test_a_file_does_not_grow_by_the_records_it_has_seen(path: Path) -> None:
    """What settled pushes leave is used again by those to come."""
    async with opened(path) as rows:
        sizes = []
        for start in range(0, 2000, 100):
            some = [
                Row(f"row-{number}", LANE, payload=b"x" * 5000)
                for number in range(start, start + 100)
            ]
            await awaited(rows.add(some))
            await awaited(rows.put([one.to(State.FINAL, status="Success") for one in some]))
            sizes.append(path.stat().st_size)
    assert path.stat().st_size < 500_000 + 600 * 2000


# Opening and closing


async def test_closing_finishes_what_was_handed_in(path: Path) -> None:
    """Afterwards the rows say that the journal is closed."""
    async with opened(path) as rows:
        handed_in = rows.add([row(1)])
    await awaited(handed_in)
    with pytest.raises(JournalError, match="closed"):
        await rows.rows()
    assert await recorded(path) == [row(1)]


@pytest.mark.parametrize("turns", range(6))
async def test_whoever_is_cancelled_at_opening_or_closing_leaves_the_file_free(
    path: Path, turns: int
) -> None:
    """A worker with a time-out may try again at once."""
    for _ in range(3):
        store = Store(path)
        for work in (store.lend(), store.aclose()):
            task = asyncio.ensure_future(work)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await store.aclose()


async def test_a_file_has_one_owner(path: Path) -> None:
    """A second one is refused, in this process as in any other, until the first one closes."""
    async with opened(path):
        with pytest.raises(JournalInUse, match="in use"):
            await Store(path).lend()
    async with opened(path):
        pass


FORKS = """
import asyncio, os, signal, sys, time
from integration_sdk import Store

async def main():
    rows = await Store(sys.argv[1]).lend()
    if not (child := os.fork()):
        os.close(1)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_forked_process_keeps_nothing_locked(path: Path) -> None:
    """Workers of a pool outlive whoever is killed; the next run has the file all the same."""
    program = [sys.executable, "-W", "ignore", "-c", FORKS, str(path)]
    process = await asyncio.create_subprocess_exec(*program, stdout=PIPE)
    assert process.stdout
    orphan = int(await process.stdout.readline())
    try:
        await process.wait()
        async with opened(path):
            pass
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_store_belongs_to_its_loop(path: Path) -> None:
    """Used from another event loop it says so, instead of hanging."""
    store = Store(path)
    with asyncio.Runner() as runner:
        rows = runner.run(store.lend())
        with pytest.raises(JournalError, match="another process or event loop"):
            asyncio.run(rows.rows())
        runner.run(store.aclose())


async def test_odd_file_names_are_just_names(tmp_path: Path) -> None:
    """What means something in an address means nothing in a path."""
    for name in ("a b", "a%20b", "a?mode=ro", "a#b", "ä", "a&b=c"):
        async with opened(tmp_path / name) as rows:
            await awaited(rows.add([row(1)]))
        assert await recorded(tmp_path / name) == [row(1)]
        assert (tmp_path / name).exists()


# Other users, other programs


async def test_files_are_their_owners_alone(path: Path) -> None:
    """Mode 0600 for the file and all that stands beside it, whatever it was before."""
    path.touch(0o666)
    async with opened(path) as rows:
        await awaited(rows.add([row(1)]))
        files = list(path.parent.iterdir())
        assert len(files) == 4
        assert {one.stat().st_mode & 0o777 for one in files} == {0o600}


@pytest.mark.parametrize("suffix", ["", "-lock", "-wal", "-shm"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
async def test_links_are_refused(
    path: Path, tmp_path: Path, suffix: str, link: Callable[[Path, Path], None]
) -> None:
    """A file is never written through a link, which may lead to somebody else's."""
    other = tmp_path / "other"
    other.touch()
    link(other, path.with_name(path.name + suffix))

    with pytest.raises(JournalError, match="link"):
        await Store(path).lend()
    assert not other.read_bytes()


async def test_a_pipe_is_no_file(path: Path) -> None:
    """What is no regular file is refused, whichever of a journal's names it has."""
    os.mkfifo(path.with_name(path.name + "-lock"))

    with pytest.raises(JournalError, match="no regular file"):
        await Store(path).lend()


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"No such file or directory: .*/none"):
        await Store(tmp_path / "none" / "state.db").lend()


async def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    """Neither a database nor any other file is touched, even in its mode."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
        db.commit()
    text = path.with_name("records.jsonl")
    text.write_text('{"a": 1}')
    for one in (path, text):
        one.chmod(0o644)
        before = one.read_bytes()
        for work in (Store(one).lend(), recorded(one)):
            with pytest.raises(JournalError, match="not a journal"):
                await work
        assert one.read_bytes() == before
    assert text.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("version", "which"), [(3, "older"), (99, "newer")])
async def test_a_file_of_another_version_is_left_alone(
    path: Path, version: int, which: str
) -> None:
    """It is for the version of the SDK that made it."""
    if which == "older":
        with closing(sqlite3.connect(path)) as db:
            db.executescript(OLD_LAYOUT)
    else:
        async with opened(path):
            pass
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()

    for work in (Store(path).lend(), recorded(path)):
        with pytest.raises(JournalError, match=f"version {version}; .*the {which} SDK"):
            await work
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("elsewhere")),
        lambda path: path.with_name(path.name + "-lock").unlink(),
        lambda path: (
            shutil.copy(path, path.with_name("copy")) and path.with_name("copy").replace(path)
        ),
        lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    ],
    ids=["deleted", "moved", "lock deleted", "replaced", "directory moved"],
)
async def test_a_file_that_nobody_would_find_is_not_written_on(
    path: Path, change: Callable[[Path], object]
) -> None:
    """What was written to it would be forgotten, or a second owner could open it meanwhile."""
    async with opened(path) as rows:
        await awaited(rows.add([row(1)]))
        change(path)
        for _ in range(2):
            with pytest.raises(JournalError, match="moved, deleted or replaced"):
                await awaited(rows.put([sent(row(1))]))


async def test_who_only_looks_sees_one_moment_and_changes_nothing(path: Path) -> None:
    """Also while a program has the file; a file that is empty holds no pushes."""
    path.touch()
    assert await recorded(path) == []
    async with opened(path) as rows:
        await awaited(rows.add([row(1)]))
        assert await recorded(path) == [row(1)]
        await awaited(rows.put([sent(row(1))]))
        assert await recorded(path) == [sent(row(1))]
    before = path.read_bytes()
    assert await recorded(path) == [sent(row(1))]
    assert path.read_bytes() == before
    assert await Store(path, "other").recorded() == []


# Crashes


def writer(path: Path, *options: str, watch: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    command = [*watch, sys.executable, "-m", "tests.support.store_child", str(path), *options]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root)


@pytest.mark.parametrize(
    "kills", [12, pytest.param(600, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
async def test_a_killed_process_loses_nothing_it_reported(path: Path, kills: int) -> None:
    """Killed with signal 9: what a write returned for is there, and the lock free."""
    chance, before = random.Random(5), 0
    for _ in range(kills):
        with writer(path) as child:
            assert child.stdout is not None
            said = [int(child.stdout.readline()) for _ in range(chance.randrange(1, 12))]
            child.kill()
            said += map(int, child.stdout.read().split())
        async with opened(path) as rows:
            found = await rows.rows()
        assert len(found) in (said[-1], said[-1] + 8)
        assert {one.state for one in found[before : said[-1]]} == {State.SENDING}
        before = len(found)


STRACE = shutil.which("strace")


def unsynced_words(path: Path, *options: str) -> tuple[int, int]:
    """Watch a writer; return how often it spoke, and how often before its log was synced."""
    trace = path.with_name("trace")
    calls = "trace=write,pwrite64,fsync,fdatasync"
    watch = (str(STRACE), "-fy", "-e", calls, "-o", str(trace))
    with writer(path, *options, watch=watch) as child:
        assert child.stdout is not None
        for _ in range(30):
            child.stdout.readline()
        child.terminate()
    said = early = 0
    unsynced = False
    for line in trace.read_text().splitlines():
        if "-wal>" in line and "write" in line:
            unsynced = True
        elif re.search(r"f(data)?sync\(\d+<[^>]*-wal>\)?\s*(=|\))", line):
            unsynced = False
        elif re.search(r'write\(1<[^>]*>, "\d+\\n"', line):
            said += 1
            early += unsynced
    return said, early


if STRACE:

    def test_what_is_reported_has_been_synced(path: Path) -> None:
        """By the system calls: the log is on stable storage before the caller goes on."""
        said, early = unsynced_words(path)

        assert said >= 30
        assert early == 0

    def test_synchronous_normal_is_caught(path: Path) -> None:
        """With it the caller would go on before the log is synced."""
        said, early = unsynced_words(path, "careless")

        assert said >= 30
        assert early >= said - 2


@pytest.fixture
async def killed(path: Path, tmp_path: Path) -> Path:
    """A file and its log as a killed process leaves them, after 30 commits."""
    copy = tmp_path / "copy"
    copy.mkdir()
    async with opened(path) as rows:
        await rows.take("acme")
        for number in range(10):
            one = row(number, reference=f"INV-{number}")
            await awaited(rows.add([one]))
            await awaited(rows.put([one := sent(one)]))
            opened_ = one.to(State.OPEN, key=f"key {number}", evidence=Evidence.OWN_ANSWER)
            await awaited(rows.put([opened_]))
        for suffix in ("", "-wal", "-lock"):
            name = path.name + suffix
            shutil.copy(path.with_name(name), copy / name)
    return copy / path.name


async def test_a_torn_log_opens_with_what_was_committed(killed: Path) -> None:
    """Power loss cuts the log anywhere: every image opens with a whole number of commits."""
    log = killed.with_name(killed.name + "-wal")
    whole, made = log.read_bytes(), killed.read_bytes()
    steps, chance = set[int](), random.Random(1)
    for _ in range(60):
        killed.write_bytes(made)
        killed.with_name(killed.name + "-shm").unlink(missing_ok=True)
        log.write_bytes(whole[: chance.randrange(len(whole))])
        async with opened(killed) as rows:
            found = await rows.rows()
        steps.add(sum(1 + one.version for one in found))
        assert all(one.state is State.OPEN for one in found[:-1])
        assert [one.id for one in found] == [f"row-{number}" for number in range(len(found))]
    assert len(steps) > 10


async def test_damage_is_an_error_of_the_journals(killed: Path) -> None:
    """Whatever bit is flipped: it opens, or is refused and left as it is.

    A bit inside a value may go unnoticed: that is the disk's to prevent.
    """
    async with opened(killed):
        pass
    whole, chance, refused = killed.read_bytes(), random.Random(2), 0
    for _ in range(150):
        image = bytearray(whole)
        image[chance.randrange(len(image))] ^= 1 << chance.randrange(8)
        killed.write_bytes(image)
        try:
            async with opened(killed) as rows:
                await rows.rows()
        except JournalError as error:
            refused += "cannot be trusted" in str(error)
            assert killed.read_bytes() == image
    assert refused > 5


async def test_a_disk_that_is_full_is_said_and_nothing_half_written(path: Path) -> None:
    """Whoever opens the file again finds what was reported, and goes on."""
    written, (soft, hard) = 0, resource.getrlimit(resource.RLIMIT_FSIZE)
    error: JournalError | None = None
    async with opened(path) as rows:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            while error is None:
                two = [row(written, error="x" * 5000), row(-written - 1)]
                try:
                    await awaited(rows.add(two))
                    written += 1
                except JournalError as full:
                    error = full
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be written" in str(error)
    async with opened(path) as rows:
        assert len(await rows.rows()) == 2 * written
        await awaited(rows.add([row(10_000)]))
