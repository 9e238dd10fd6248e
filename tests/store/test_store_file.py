"""What a store in a file promises about crashes, damage, other programs and other users."""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from integration_sdk._store.journal import Journal
from integration_sdk._store.row import Lane, Row, State
from integration_sdk._store.store import Store
from integration_sdk.errors import JournalError

LANE = Lane("acme", "connection", "invoices")
WAL_HEADER, FRAME_HEADER = 32, 24


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Journal]:
    async with Store(path) as store:
        yield await store._lend(base_url="http://a", dialect="document")


async def recorded(path: Path) -> list[Row]:
    """The rows of a file, as a program that only looks sees them."""
    return await Store(path)._recorded()


def row(number: int, **facts: Any) -> Row:
    return Row(f"row-{number}", LANE, version=0, payload=b"%d" % number, **facts)


def commits(path: Path) -> int:
    """Return how many transactions are in the log of an open file."""
    log = path.with_name(path.name + "-wal").read_bytes()
    size = int.from_bytes(log[8:12]) + FRAME_HEADER
    frames = (log[at : at + FRAME_HEADER] for at in range(WAL_HEADER, len(log), size))
    return sum(int.from_bytes(frame[4:8]) > 0 for frame in frames if frame[8:16] == log[16:24])


async def test_what_is_asked_in_one_turn_is_one_transaction(path: Path) -> None:
    """64 pushes that are recorded at once wait for the disk once, and for the next step again."""
    async with opened(path) as journal:
        many = [row(number) for number in range(64)]
        before = commits(path)

        await asyncio.gather(*map(journal.write, many))
        assert commits(path) == before + 1
        await asyncio.gather(*(journal.write(one.next(State.SENDING)) for one in many))
        assert commits(path) == before + 2


async def test_record_leaves_the_file(path: Path) -> None:
    """What is deleted is overwritten, and its room used again."""
    secret = b"an account number"
    async with opened(path) as journal:
        for start in range(0, 1000, 100):
            some = [row(start + at, error="e" * 50) for at in range(100)]
            some = [Row(one.id, LANE, version=0, payload=secret * 300) for one in some]
            await asyncio.gather(*map(journal.write, some))
            await asyncio.gather(*(journal.write(one.next(State.DONE)) for one in some))

    assert secret not in path.read_bytes()
    assert path.stat().st_size < 2_500_000  # of records of 5 MB


async def test_closing_finishes_what_was_handed_in(path: Path) -> None:
    """Afterwards the journal says that it is closed."""
    async with opened(path) as journal:
        handed_in = journal.write(row(1))
    await handed_in
    with pytest.raises(JournalError, match="closed"):
        await journal.rows(["row-1"])
    assert await recorded(path) == [row(1)]


@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_opening_or_closing_leaves_the_file_free(path: Path, turns: int) -> None:
    """A worker with a time-out may try again at once."""
    for _ in range(3):
        store = Store(path)
        for work in (store._lend(), store.aclose()):
            task = asyncio.ensure_future(work)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await store.aclose()


async def test_files_are_their_owners_alone(path: Path) -> None:
    """Mode 0600 for the file and all that stands beside it, whatever it was before."""
    path.touch(0o666)
    async with opened(path) as journal:
        await journal.write(row(1))
        files = list(path.parent.iterdir())
        assert len(files) == 4
        assert {one.stat().st_mode & 0o777 for one in files} == {0o600}


@pytest.mark.parametrize("suffix", ["", "-lock"])
async def test_links_are_refused(path: Path, tmp_path: Path, suffix: str) -> None:
    """A file is never written through a link, which may lead to somebody else's."""
    other = tmp_path / "other"
    other.touch()
    path.with_name(path.name + suffix).symlink_to(other)

    with pytest.raises(JournalError, match="link"):
        await Store(path)._lend()
    assert not other.read_bytes()


async def test_file_of_another_program_is_left_alone(path: Path) -> None:
    """Neither a database nor any other file is touched, even in its mode."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    text = path.with_name("records.jsonl")
    text.write_text('{"a": 1}')
    for one in (path, text):
        one.chmod(0o644)
        before = one.read_bytes()
        for work in (Store(one)._lend(), recorded(one)):
            with pytest.raises(JournalError, match="not a journal"):
                await work
        assert one.read_bytes() == before
        assert one.stat().st_mode & 0o777 == 0o644


async def test_file_of_another_version_is_left_alone(path: Path) -> None:
    """It is for the version of the SDK that made it."""
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE versions SET version = 99")
        db.commit()
    before = path.read_bytes()

    for work in (Store(path)._lend(), recorded(path)):
        with pytest.raises(JournalError, match="tables of version 99, but this SDK needs"):
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
async def test_file_that_has_lost_its_name_is_not_written_on(
    path: Path, change: Callable[[Path], object]
) -> None:
    """What was written to it would be forgotten, or a second owner could open it meanwhile."""
    async with opened(path) as journal:
        await journal.write(row(1))
        change(path)
        for _ in range(2):
            with pytest.raises(JournalError, match="moved, deleted or replaced"):
                await journal.write(row(1).next(State.SENDING))


async def test_reader_sees_one_moment_and_changes_nothing(path: Path) -> None:
    """Also while a program has the file; a file that is empty or missing holds no pushes."""
    assert await recorded(path) == []
    path.touch()
    assert await recorded(path) == []
    async with opened(path) as journal:
        await journal.write(row(1))
        assert await recorded(path) == [row(1)]
        await journal.write(row(1).next(State.SENDING))
        assert await recorded(path) == [row(1).next(State.SENDING)]
    before = path.read_bytes()
    assert await recorded(path) == [row(1).next(State.SENDING)]
    assert path.read_bytes() == before
    assert await Store(path, "other")._recorded() == []


@pytest.fixture
async def killed(path: Path, tmp_path: Path) -> Path:
    """A file and its log as a killed process leaves them, after 30 commits."""
    copy = tmp_path / "copy"
    copy.mkdir()
    async with opened(path) as journal:
        for number in range(10):
            one = row(number, reference=f"INV-{number}")
            await journal.write(one)
            await journal.write(one := one.next(State.SENDING))
            await journal.write(one.next(State.OPEN, key=f"key {number}"))
        for suffix in ("", "-wal", "-lock"):
            name = path.name + suffix
            shutil.copy(path.with_name(name), copy / name)
    return copy / path.name


async def test_torn_log_opens_with_what_was_committed(killed: Path) -> None:
    """Power loss cuts the log anywhere: every image opens with a whole number of commits."""
    log = killed.with_name(killed.name + "-wal")
    whole, made = log.read_bytes(), killed.read_bytes()
    steps, chance = set[int](), random.Random(1)
    for _ in range(40):
        killed.write_bytes(made)
        killed.with_name(killed.name + "-shm").unlink(missing_ok=True)
        log.write_bytes(whole[: chance.randrange(len(whole))])
        async with opened(killed) as journal:
            found = await journal.everything()
        steps.add(sum(1 + one.version for one in found))
        assert all(one.state is State.OPEN for one in found[:-1])
        assert [one.id for one in found] == [f"row-{number}" for number in range(len(found))]
    assert len(steps) > 10


async def test_damage_is_an_error_of_the_journal(killed: Path) -> None:
    """Whatever bit is flipped: it opens (a value may be wrong), or is refused and left as it is."""
    async with opened(killed):
        pass
    whole, chance, refused = killed.read_bytes(), random.Random(2), 0
    for _ in range(150):
        image = bytearray(whole)
        image[chance.randrange(len(image))] ^= 1 << chance.randrange(8)
        killed.write_bytes(image)
        try:
            async with opened(killed) as journal:
                await journal.everything()
        except JournalError as error:
            refused += "damaged" in str(error)
            assert killed.read_bytes() == image
    assert refused > 5


async def test_full_disk_is_said_and_nothing_half_written(path: Path) -> None:
    """The next opening finds what was reported, and goes on."""
    written, (soft, hard) = 0, resource.getrlimit(resource.RLIMIT_FSIZE)
    error: JournalError | None = None
    async with opened(path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            while error is None:
                two = [row(written, error="x" * 5000), row(-written - 1)]
                try:
                    await asyncio.gather(*map(journal.write, two))
                    written += 1
                except JournalError as full:
                    error = full
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be written" in str(error)
    async with opened(path) as journal:
        assert len(await journal.everything()) == 2 * written
        await journal.write(row(10_000))
