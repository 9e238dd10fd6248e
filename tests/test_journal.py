"""What every journal promises, and what a file adds."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration_sdk._store.file import JournalFile
from integration_sdk._store.reading import Filter
from msgspec import structs

from integration_sdk import Store
from integration_sdk._push.table import new_intent
from integration_sdk._store import Journal, KeyJournal, SqliteJournal
from integration_sdk._store.row import Evidence, Intent, KeyClaimed, Lane, Snapshot, State
from integration_sdk.errors import JournalError, JournalInUse
from tests.memory_journal import MemoryJournal

LANE = Lane("company", "books", "invoices")
SNAPSHOT = Snapshot(frozenset({"old-1", "old-2"}), whole=False)


def sending(name: str, **facts: Any) -> Intent:
    known = {"reference": f"ref-{name}", "natural_key": "n", **facts}
    lane = known.pop("lane", LANE)
    intent = new_intent(lane, b'{"n":"secret-%s"}' % name.encode(), id=name, **known)
    return intent.to(State.SENDING, attempts=1, snapshot=SNAPSHOT)


def acked(name: str, key: str | None = None, **facts: Any) -> Intent:
    known = {"key": key or f"key-{name}", "evidence": Evidence.OWN_ANSWER}
    return sending(name, **facts).to(State.ACKED, **known)


def ambiguous(name: str) -> Intent:
    return sending(name).to(State.AMBIGUOUS)


def resolved(name: str) -> Intent:
    return ambiguous(name).to(State.RESOLVED, key=f"key-{name}")


def final(name: str, **facts: Any) -> Intent:
    return acked(name, **facts).to(State.FINAL, status="Success")


def prepare(path: Path, mode: int = 0o600) -> None:
    path.touch(mode)


def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = await SqliteJournal.open(path)
    yield journal
    await journal.close()


@pytest.fixture(params=["memory", "file", "database"])
async def journal(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Journal]:
    if request.param == "database":
        url = await request.getfixturevalue("postgres").new_database()
        async with Store(url) as store:
            yield await store.lend()
        return
    one: Journal = MemoryJournal() if request.param == "memory" else await SqliteJournal.open(path)
    yield one
    await one.close()


# Every journal


async def test_rows_come_back_as_they_were_committed(journal: Journal) -> None:
    """What is read equals what was written, field by field, and the latest state counts."""
    row = sending("a", record_id="r", idempotency_key="k", timeout_minutes=60)
    doubt = row.to(State.AMBIGUOUS, error="reset", http_status=502)
    surfaced = doubt.to(State.UNRESOLVED, candidates=("x", "", "y\nz"))
    for step in (row, doubt, surfaced):
        await journal.commit([step])
        assert await journal.rows() == [step]


async def test_rows_are_found_by_reference(journal: Journal) -> None:
    """Any number of tasks may ask at once, also for the same; each gets its own rows."""
    await journal.commit([acked("a"), sending("b"), acked("c"), final("d")])

    async def ids(reference: str | None = None) -> list[str]:
        return [row.id for row in await journal.rows(reference=reference)]

    assert await ids() == ["a", "b", "c", "d"]
    asked = ["ref-d", "unknown", "ref-b", "ref-d"]
    assert await asyncio.gather(*map(ids, asked)) == [["d"], [], ["b"], ["d"]]
    assert [row.id for row in await journal.claim()] == ["a", "b", "c"]
    assert await journal.owners(["key-a", "key-d", "x"]) == {"key-a": "a", "key-d": "d"}
    assert await journal.owners([]) == {}


async def test_unsettled_is_what_the_rules_call_so(journal: Journal) -> None:
    """Recovery is given exactly the rows that are not settled."""
    rows = [structs.replace(sending(str(state)), state=state, key=None) for state in State]
    await journal.commit(rows)

    assert await journal.claim() == [row for row in rows if not row.is_settled]


async def test_a_key_has_one_owner(journal: Journal) -> None:
    """A second claim is refused, with everything else in its commit."""
    await journal.commit([acked("a", "key-1")])

    with pytest.raises(KeyClaimed):
        await journal.commit([sending("b"), acked("c", "key-1")])

    assert [row.id for row in await journal.rows()] == ["a"]


async def test_a_reference_stands_for_one_push(journal: Journal) -> None:
    """A second push of a reference is refused, unless the first was re-sent by decision."""
    doubt = sending("a", reference="r").to(State.AMBIGUOUS).to(State.ABSENT)
    await journal.commit([doubt])

    with pytest.raises(JournalError):
        await journal.commit([sending("b", reference="r")])
    decided = doubt.to(State.DECIDED, decision="resend")
    await journal.commit([decided, sending("b", reference="r")])

    assert [row.id for row in await journal.rows(reference="r")] == ["a", "b"]


async def test_a_final_row_never_changes(journal: Journal) -> None:
    """Writing it again as it is does no harm; any other state, key or status is refused."""
    await journal.commit([final("a")])
    await journal.commit([final("a")])

    for change in ({"status": "Failed"}, {"key": "another"}, {"state": State.ACKED}):
        with pytest.raises(JournalError):
            await journal.commit([structs.replace(final("a"), version=9, **change)])

    assert [(row.status, row.key) for row in await journal.rows()] == [("Success", "key-a")]


@pytest.mark.parametrize(
    "change",
    [
        {"payload_hash": "another"},
        {"method": "PUT"},
        {"record_id": "17"},
        {"reference": "another"},
        {"idempotency_key": "another"},
        {"lane": Lane("company", "books", "bills")},
    ],
)
async def test_what_an_intent_sends_never_changes(journal: Journal, change: dict[str, Any]) -> None:
    """Another record under the same id is refused, and the row stays as it was."""
    await journal.commit([sending("a")])

    with pytest.raises(JournalError, match="another record"):
        await journal.commit([sending("b"), structs.replace(sending("a"), version=9, **change)])

    assert await journal.rows() == [sending("a")]


async def test_a_refused_commit_harms_no_other(journal: Journal) -> None:
    """Commits that go to disk together fail apart."""
    await journal.commit([acked("a", "key-1")])
    commits = [journal.commit([sending("b")]), journal.commit([acked("c", "key-1")])]

    results = await asyncio.gather(*commits, journal.commit([sending("d")]), return_exceptions=True)

    assert [type(one) for one in results] == [type(None), KeyClaimed, type(None)]
    assert [row.id for row in await journal.rows()] == ["a", "b", "d"]


async def test_without_a_journal_keys_have_one_owner_still() -> None:
    """Of settled pushes the latest keys are known, of open ones all; a commit is whole or not."""
    journal = KeyJournal(remember=2)
    await journal.commit([resolved("open"), final("0"), acked("1"), acked("2")])

    with pytest.raises(KeyClaimed):
        await journal.commit([acked("new"), acked("thief", "key-2")])
    with pytest.raises(KeyClaimed):
        await journal.commit([acked("one", "key-x"), acked("other", "key-x")])

    known = await journal.owners(["key-open", "key-1", "key-2", "key-new", "key-x"])
    assert known == {"key-open", "key-1", "key-2"}
    assert await journal.rows() == await journal.claim() == []


@given(kept=st.integers(1, 9), commits=st.lists(st.integers(1, 5), max_size=40))
async def test_without_a_journal_the_latest_keys_are_known(kept: int, commits: list[int]) -> None:
    """So many as are to be remembered, and never more than twice that and the last commit's."""
    journal = KeyJournal(remember=kept)
    settled: list[str] = []
    for count in commits:
        names = [str(len(settled) + number) for number in range(count)]
        settled += [f"key-{name}" for name in names]
        await journal.commit([final(name) for name in names])

        known = await journal.owners(settled)
        assert {*settled[-kept:]} <= {*known}
        assert len(known) <= 2 * (kept + max(commits))


async def test_without_a_journal_nothing_is_forgotten_during_a_doubt() -> None:
    """A push in doubt may be as old as the keys: none may be taken for it when listed again."""
    journal = KeyJournal(remember=2)
    await journal.commit([ambiguous("lost")])
    for number in range(10):
        await journal.commit([final(str(number))])
    keys = [f"key-{number}" for number in range(10)]

    during = await journal.owners(keys)
    await journal.commit([resolved("lost"), final("last")])

    assert during == set(keys)
    await journal.commit([final("next"), final("next but one")])
    assert not await journal.owners(keys)


# A file


async def test_a_crowd_goes_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of one turn of the loop are one transaction, also of tasks that one before woke."""
    written: list[int] = []
    write = JournalFile.write

    def counted(file: JournalFile, commits: Sequence[Sequence[Intent]]) -> Any:
        written.append(len(commits))
        return write(file, commits)

    monkeypatch.setattr(JournalFile, "write", counted)
    journal = await SqliteJournal.open(path)

    async def in_turn(names: str) -> None:
        for name in names:
            await journal.commit([sending(name)])

    await asyncio.gather(in_turn("abc"), in_turn("def"))
    await in_turn("g")
    await journal.close()

    assert written == [2, 2, 2, 1]


async def test_a_file_outlives_its_process(path: Path) -> None:
    """Rows, snapshots and claims are there when the file is opened again."""
    rows = [sending("a"), acked("b"), final("c")]
    first = await SqliteJournal.open(path)
    await first.commit(rows)
    await first.close()

    second = await SqliteJournal.open(path)
    read = await second.rows()
    await second.close()

    assert [structs.replace(row, payload=None) for row in read] == [
        structs.replace(row, payload=None) for row in rows
    ]
    assert read[0].payload == rows[0].payload
    assert read[0].snapshot == SNAPSHOT


async def test_commits_that_wait_together_go_together(file: SqliteJournal) -> None:
    """64 pushes of one turn of the loop cost one transaction; the next 64, one more."""
    for batch in range(2):
        names = [f"{batch}-{number}" for number in range(64)]
        await asyncio.gather(*(file.commit([sending(name)]) for name in names))

    assert len(await file.rows()) == 128
    assert file._file._commits == 2


async def test_a_writer_that_breaks_leaves_nobody_waiting(
    file: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours on the thread is an error for each who asked, and the next is heard."""
    with monkeypatch.context() as patch:
        patch.setattr(JournalFile, "write", lambda self, commits: 1 // 0)
        broken = await asyncio.gather(
            file.commit([sending("a")]), file.rows(), return_exceptions=True
        )

    assert [type(one) for one in broken] == [JournalError, JournalError]
    assert "ZeroDivisionError" in str(broken[0])
    await file.commit([sending("a")])


async def test_a_cancelled_commit_is_made_all_the_same(file: SqliteJournal) -> None:
    """Who stops waiting takes nothing back: what was handed in goes to disk, in its order."""
    waiting = asyncio.ensure_future(file.commit([sending("a")]))
    await asyncio.sleep(0)
    waiting.cancel()
    await file.commit([sending("a").to(State.QUEUED)])

    assert [row.state for row in await file.rows()] == [State.QUEUED]


async def test_what_is_asked_together_is_answered_together(file: SqliteJournal) -> None:
    """A commit's error is its own; a question sees what was committed before it."""
    await file.commit([acked("a", "key-1")])

    thief, new, found, owners = await asyncio.gather(
        file.commit([acked("b", "key-1")]),
        file.commit([acked("c", "key-2")]),
        file.rows(reference="ref-c"),
        file.owners(["key-1", "key-2"]),
        return_exceptions=True,
    )

    assert isinstance(thief, KeyClaimed)
    assert new is None
    assert (found, owners) == ([acked("c", "key-2")], {"key-1": "a", "key-2": "c"})


async def test_a_snapshot_is_stored_once_and_dropped_when_nobody_needs_it(path: Path) -> None:
    """A batch shares one snapshot; it goes when every row of it has its key."""
    journal = await SqliteJournal.open(path)
    await journal.commit([sending(str(number)) for number in range(50)])
    await journal.close()
    assert count(path, "snapshots") == 1

    journal = await SqliteJournal.open(path)
    await journal.commit([acked(str(number)) for number in range(50)])
    await journal.close()
    assert count(path, "snapshots") == 0


def count(path: Path, table: str) -> int:
    db = sqlite3.connect(path)
    ((rows,),) = db.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608  # a test's
    db.close()
    return int(rows)


@pytest.mark.parametrize("end", [State.ACKED, State.REJECTED, State.NOT_SENT])
async def test_snapshots_of_a_long_run_are_dropped_as_it_goes(path: Path, end: State) -> None:
    """A service that runs for months keeps those it needs, on disk and at hand."""
    journal = await SqliteJournal.open(path)
    doubt = ambiguous("doubt")
    await journal.commit([doubt])
    for number in range(1000):
        snapshot = Snapshot(frozenset({f"old-{number}"}))
        row = structs.replace(sending(str(number)), snapshot=snapshot)
        await journal.commit([row])
        known = {"key": row.id, "evidence": Evidence.OWN_ANSWER} if end is State.ACKED else {}
        await journal.commit([row.to(end, **known)])
    [kept] = await journal.rows(reference="ref-doubt")
    at_hand, on_disk = len(journal._file._snapshots), count(path, "snapshots")
    await journal.close()

    assert kept == doubt
    assert max(at_hand, on_disk) < 300


async def test_cancelling_a_commit_does_not_take_it_back(file: SqliteJournal) -> None:
    """A cancelled caller's rows are on disk, and the next commits go on."""
    task = asyncio.create_task(file.commit([sending("a")]))
    await asyncio.sleep(0)
    task.cancel()
    await file.commit([sending("b")])
    await asyncio.wait([task])

    assert task.cancelled()
    assert [row.id for row in await file.rows()] == ["a", "b"]


async def test_a_cancelled_commit_that_is_refused_says_so(file: SqliteJournal) -> None:
    """However often its caller is cancelled: a cancellation means that the rows are written."""
    await file.commit([acked("a", "key-1")])
    thief = asyncio.create_task(file.commit([acked("b", "key-1")]))
    await asyncio.sleep(0)
    for _ in range(3):
        thief.cancel()
        await asyncio.sleep(0)

    with pytest.raises(KeyClaimed):
        await thief


async def test_closing_finishes_what_was_handed_in(path: Path) -> None:
    """Close waits for the writer; afterwards the journal says that it is closed."""
    journal = await SqliteJournal.open(path)
    waiting = [asyncio.create_task(journal.commit([sending(str(n))])) for n in range(3)]
    await asyncio.sleep(0)
    await journal.close()
    await journal.close()
    await asyncio.gather(*waiting)

    with pytest.raises(JournalError, match="is closed"):
        await journal.commit([sending("late")])
    assert count(path, "intents") == 3


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_close_that_is_cancelled_closes_all_the_same(path: Path, turns: int) -> None:
    """Whenever its caller is cancelled, the file is free when that has ended."""
    journal = await SqliteJournal.open(path)
    commit = asyncio.create_task(journal.commit([sending("a")]))
    await asyncio.sleep(0)
    close = asyncio.create_task(journal.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    close.cancel()
    await asyncio.gather(close, commit, return_exceptions=True)

    again = await SqliteJournal.open(path)
    assert [row.id for row in await again.rows()] == ["a"]
    await again.close()


@pytest.mark.parametrize("turns", range(5))
async def test_nobody_else_can_stop_a_close(path: Path, turns: int) -> None:
    """A stranger who cancels all tasks but its caller's finds none that closes."""
    journal = await SqliteJournal.open(path)
    commit = asyncio.create_task(journal.commit([sending("a")]))
    await asyncio.sleep(0)
    close = asyncio.create_task(journal.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    for stranger in asyncio.all_tasks() - {asyncio.current_task(), close}:
        stranger.cancel()
    await close
    await asyncio.wait([commit])

    again = await SqliteJournal.open(path)
    assert [row.id for row in await again.rows()] == ["a"]
    await again.close()


@pytest.mark.parametrize("turns", range(1, 5))
async def test_an_opening_that_is_cancelled_leaves_the_file_free(path: Path, turns: int) -> None:
    """A worker with a time-out may try again at once."""
    opening = asyncio.create_task(SqliteJournal.open(path))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()

    again = await SqliteJournal.open(path)
    await again.close()


async def test_a_record_is_kept_until_its_push_is_final(path: Path) -> None:
    """Afterwards its hash is, by which another record of the same reference is told from it."""
    journal = await SqliteJournal.open(path)
    sent, open_ = sending("a"), sending("b")
    await journal.commit([sent, open_])
    await journal.commit([acked("a"), acked("b")])
    both = await journal.rows()
    await journal.commit([final("a")])
    rows = await journal.rows()
    await journal.close()

    assert [row.payload for row in both] == [sent.payload, open_.payload]
    assert [row.payload for row in rows] == [None, open_.payload]
    assert rows[0].payload_hash == sent.payload_hash
    assert count(path, "payloads") == 1


@pytest.mark.parametrize("state", [State.REJECTED, State.NOT_SENT])
async def test_a_record_that_was_refused_is_not_kept(path: Path, state: State) -> None:
    """It is while it is to be sent again; afterwards whoever asks for it brings it along."""
    journal = await SqliteJournal.open(path)
    waits, refused = sending("a").to(State.QUEUED), sending("b").to(state)
    await journal.commit([sending("a"), sending("b"), sending("c")])
    await journal.commit([waits, refused])
    await journal.commit([sending("c").to(State.QUEUED), sending("d").to(state)])
    given_back = sending("c").to(State.QUEUED).to(state, decision="resend")
    await journal.commit([given_back])
    rows = await journal.rows()
    await journal.close()

    assert [row.payload for row in rows] == [waits.payload, None, None, None]
    await (await SqliteJournal.open(path)).close()


async def test_a_journal_does_not_grow_by_the_records_it_has_seen(path: Path) -> None:
    """What final pushes leave is used again by those to come."""
    journal = await SqliteJournal.open(path)
    pages = []
    for batch in range(10):
        rows = [heavy(f"{batch}-{number}") for number in range(10)]
        await journal.commit(rows)
        rows = [row.to(State.ACKED, key=row.id, evidence=Evidence.OWN_ANSWER) for row in rows]
        await journal.commit([row.to(State.FINAL, status="Success") for row in rows])
        pages.append(await journal._ask(pages_of, journal._file))
    await journal.close()

    assert pages[0] > 50
    assert pages[-1] < 1.2 * pages[0]


def heavy(name: str) -> Intent:
    return new_intent(LANE, b"[%s]" % (b" " * 20_000), id=name).to(State.SENDING, attempts=1)


def pages_of(file: JournalFile) -> int:
    [[pages]] = file._db.execute("PRAGMA page_count").fetchall()
    return int(pages)


async def test_without_payloads_no_record_is_on_disk(path: Path) -> None:
    """Hash and natural key are kept, the record is not."""
    journal = await SqliteJournal.open(path)
    journal.store_payloads = False
    row = structs.replace(sending("a"), natural_value="text INV-1")
    await journal.commit([row])
    [read] = await journal.rows()
    on_disk = b"".join(one.read_bytes() for one in path.parent.iterdir())
    await journal.close()

    assert b"secret" not in on_disk
    assert read.payload is None
    assert (read.payload_hash, read.natural_value) == (row.payload_hash, "text INV-1")


async def test_files_are_their_owners_alone(path: Path) -> None:
    """Mode 0600 for the journal and all that stands beside it, whatever it was before."""
    prepare(path, mode=0o644)
    journal = await SqliteJournal.open(path)
    await journal.commit([sending("a")])
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    await journal.close()

    assert modes == dict.fromkeys(
        ["pushes.db", "pushes.db-lock", "pushes.db-wal", "pushes.db-shm"], 0o600
    )


@pytest.mark.parametrize("name", ["pushes.db", "pushes.db-lock", "pushes.db-wal"])
async def test_symbolic_links_are_refused(path: Path, tmp_path: Path, name: str) -> None:
    """A journal is never written through a link, which may lead to a file of somebody else's."""
    target = tmp_path / "target"
    target.touch()
    path.with_name(name).symlink_to(target)

    with pytest.raises(JournalError, match="not a regular file"):
        await SqliteJournal.open(path)
    assert target.stat().st_size == 0


async def test_files_of_others_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another user could have prepared is not trusted."""
    prepare(path)
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)

    with pytest.raises(JournalError, match="belongs to user"):
        await SqliteJournal.open(path)


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The path is named, what the system said, and the directory, but no file beside."""
    why = r"pushes\.db cannot be opened: No such file or directory: .*missing\.$"
    with pytest.raises(JournalError, match=why):
        await SqliteJournal.open(tmp_path / "missing" / "pushes.db")


async def test_a_journal_has_one_owner(path: Path, file: SqliteJournal) -> None:
    """A second owner is refused, in this process as in any other, until the first one closes."""
    with pytest.raises(JournalInUse, match="in use by another"):
        await SqliteJournal.open(path)
    await file.close()

    again = await SqliteJournal.open(path)
    await again.close()


async def test_a_strangers_database_is_left_alone(path: Path) -> None:
    """A SQLite file that is no journal is refused and not touched."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()
    before = content(path)

    with pytest.raises(JournalError, match="not a journal of this SDK"):
        await SqliteJournal.open(path)
    assert content(path) == before


async def test_odd_file_names_are_just_names(tmp_path: Path) -> None:
    """What means something in an address means nothing in a path."""
    path = tmp_path / "a?mode=memory#100%25.db"
    journal = await SqliteJournal.open(path)
    await journal.commit([sending("a")])
    await journal.close()

    assert count(path, "intents") == 1


def test_a_journal_belongs_to_its_loop(path: Path) -> None:
    """Used from another event loop it says so, instead of hanging."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        journal = first.run(SqliteJournal.open(path))
        with pytest.raises(JournalError, match="another process or event loop"):
            second.run(journal.commit([sending("a")]))
        first.run(journal.close())


@given(st.sets(st.text()))
def test_the_filter_forgets_no_reference(added: set[str]) -> None:
    """Else a later run would not find its push, and would send it again."""
    references = Filter()
    for text in added:
        references.add(text)

    assert all(text in references for text in added)


def test_the_filter_knows_a_new_reference_for_new() -> None:
    """Nearly always: among 20,000 that were added, fewer than 1 of 1,000 others seem known."""
    references = Filter()
    for number in range(20_000):
        references.add(f"old-{number}")

    assert sum(f"new-{number}" in references for number in range(20_000)) < 20
