"""`pushes list` and `pushes resolve`: a journal read, and decisions recorded, without a network."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from integration_sdk import Store
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane, Row, State, Verdict
from integration_sdk._store.rows import Rows
from integration_sdk.cli import main
from tests.support.cli_support import at_once, on_record, recorded, run
from tests.support.postgres import Server

LANE = Lane("company", "connection", "invoices")
NO_LIST = "a list shows pushes that may be these, or proves nothing"


def row(name: str, state: State, **facts: object) -> Row:
    """A push in *state*."""
    return new_row(LANE, b"{}", id=name, reference=f"INV-{name}").to(state, **facts)


def unresolved(name: str, **facts: object) -> Row:
    return row(name, State.DOUBT, verdict=Verdict.UNRESOLVED, **facts)


ROWS = (
    unresolved("aa1", candidates=("k-7", "k-8")),
    unresolved("aa2"),
    row("bb1", State.SENDING),
    row("cc1", State.OPEN, key="k-1"),
    row("dd1", State.FINAL, key="k-2", status="Success"),
    row("dd2", State.FINAL, key="k-3", status="Success"),
)
"""A push of each kind."""


@pytest.fixture(params=["file", "database"])
async def where(request: pytest.FixtureRequest, tmp_path: Path, postgres: Server) -> str:
    return str(tmp_path / "state.db") if request.param == "file" else await postgres.new_database()


@pytest.fixture
def journal(tmp_path: Path) -> str:
    path = tmp_path / "pushes.db"
    asyncio.run(on_record(path, ROWS))
    return str(path)


def test_list_counts_by_state_and_says_what_is_next(
    journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each state is counted, and what is in doubt is shown with its candidates."""
    assert main(["pushes", "list", "--journal", journal]) == 0

    text = " ".join(capsys.readouterr().out.split())
    assert "6 pushes in" in text
    assert "FINAL Success 2" in text
    assert "OPEN 1 accepted by the service" in text
    assert "SENDING 1 the answer was lost" in text
    assert "DOUBT UNRESOLVED 2 in doubt" in text
    assert "aa1 INV-aa1 company invoices k-7, k-8" in text


@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_a_list_is_shown_in_any_encoding(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that the terminal cannot write is shown as Python would, and JSON stays JSON."""
    await on_record(tmp_path / "j.db", [unresolved("aa1", candidates=("k-\xe9",))])
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    done = await run("pushes", "list", "--journal", str(tmp_path / "j.db"), *options)

    assert (done.code, done.stderr) == (0, "")
    assert r"k-\u00e9" in done.stdout if options else r"k-\xe9" in done.stdout


def test_list_as_json_gives_every_push(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json each push is an object on a line of its own."""
    assert main(["pushes", "list", journal, "--json"]) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["intent"] for row in rows] == ["aa1", "aa2", "bb1", "cc1", "dd1", "dd2"]
    assert rows[4] == {
        "intent": "dd1",
        "state": "FINAL",
        "status": "Success",
        "reference": "INV-dd1",
        "companyId": "company",
        "connectionId": "connection",
        "dataType": "invoices",
        "key": "k-2",
        "attempts": 0,
    }


def test_an_empty_journal_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was pushed yet, list says so."""
    path = tmp_path / "pushes.db"
    asyncio.run(on_record(path, []))

    assert main(["pushes", "list", "--journal", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "pushes.db holds no pushes in scope 'default'." in told


@pytest.mark.parametrize(
    "command", [["list"], ["resume"], ["resolve", "aa1", "--abandon"]], ids=lambda one: one[0]
)
def test_a_journal_that_is_not_there_is_not_made(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt path is wrong usage, and leaves no file behind."""
    path = tmp_path / "mistake.db"
    there = ["--base-url", "http://127.0.0.1:9", "--api-key", "k"] if command == ["resume"] else []

    assert main(["pushes", *command, "--journal", str(path), *there]) == 2
    assert "there is no journal" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_cannot_be_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A path that no file can have is wrong usage, not a traceback."""
    assert main(["pushes", "list", "--journal", "x" * 300]) == 2
    assert "File name too long" in capsys.readouterr().err


def test_a_journal_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another file is named as such in one line, and left as it was."""
    path = tmp_path / "notes.txt"
    path.write_text("not a journal, but long enough to be looked at as one" * 10)

    assert main(["pushes", "list", "--journal", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is not a journal of this SDK" in error


@pytest.mark.parametrize(
    ("options", "decision", "next_step"),
    [
        (["--abandon"], "abandon", "given up"),
        (["--resend"], "resend", "will be sent again"),
        (["--bind", "k-7"], "bind", "is push k-7"),
    ],
    ids=["abandon", "resend", "bind"],
)
def test_a_decision_is_on_record(
    journal: str,
    options: list[str],
    decision: str,
    next_step: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each decision is kept with the push, which the beginning of its id names."""
    assert main(["pushes", "resolve", "aa1", "--journal", journal, *options]) == 0

    rows = asyncio.run(recorded(journal))
    assert (rows["aa1"].state, rows["aa1"].decision) == (
        State.OPEN if decision == "bind" else State.CLOSED,
        decision,
    )
    assert rows["aa1"].key == ("k-7" if decision == "bind" else None)
    assert rows["aa2"].state is State.DOUBT
    assert [row.state for row in rows.values() if row.parent == "aa1"] == (
        [State.QUEUED] if decision == "resend" else []
    )
    assert next_step in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["aa", "--abandon"], "2 intents begin with 'aa'"),
        (["zz", "--abandon"], "no intent that is not settled begins with 'zz'"),
        (["aa1", "--bind", "a/../b"], "bind 'a/../b' cannot be part of a path"),
        (["aa1", "--bind", ""], "bind must be a non-empty string"),
        (["aa1", "--abandon", "--bind", ""], "Exactly 1 of {--resend, --abandon, --bind}"),
        (["aa1", "--bind", " "], "bind must be a non-empty string"),
        (["dd1", "--abandon"], "no intent that is not settled"),
        (["cc1", "--resend"], "only what is in doubt can be decided"),
        (["aa1"], "Exactly 1 of {--resend, --abandon, --bind}"),
        (["aa1", "--resend", "--abandon"], "Exactly 1 of {--resend, --abandon, --bind}"),
        (["--abandon"], "Exactly 1 of {--intent, --all-absent}"),
        (["aa1", "--all-absent", "--abandon"], "Exactly 1 of {--intent, --all-absent}"),
        (["--all-absent", "--bind", "k-7"], "Mutually exclusive arguments"),
        (["--all-absent"], "Exactly 1 of {--resend, --abandon, --bind}"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_decision_that_cannot_be_made_changes_nothing(
    journal: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unclear, settled and undoubted pushes are refused as wrong usage."""
    before = asyncio.run(recorded(journal))

    assert main(["pushes", "resolve", *arguments, "--journal", journal]) == 2

    assert complaint in capsys.readouterr().err
    assert asyncio.run(recorded(journal)) == before


def absent(name: str, **facts: object) -> Row:
    return row(name, State.DOUBT, verdict=Verdict.ABSENT, **facts)


UNSHOWN = (
    *(
        structs.replace(one, natural_key="number", natural_value="1")
        for one in (
            absent("aa1"),
            absent("aa2"),
            absent("bb1", candidates=("k-7",)),
            structs.replace(absent("bb2"), method="PUT", record_id="r-1"),
            unresolved("bb3"),
        )
    ),
    absent("bb4"),
)
"""Two of which no list shows anything, and four others."""


@pytest.mark.parametrize(
    ("option", "next_step"), [("--resend", "will be sent again"), ("--abandon", "given up")]
)
async def test_one_decision_for_all_that_no_list_shows(
    where: str, option: str, next_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that `in_doubt="resend"` means; of the others it is said why they are left alone."""
    await on_record(where, UNSHOWN)
    before = await recorded(where)

    command = ["pushes", "resolve", "--all-absent", "--journal", where, option]
    assert await asyncio.to_thread(main, command) == 0

    rows = await recorded(where)
    decided = {name for name in before if rows[name].decision == option.strip("-")}
    assert decided == {"aa1", "aa2"}
    assert {name: rows[name] for name in before.keys() - decided} == {
        name: before[name] for name in before.keys() - decided
    }
    sent = {row.parent for row in rows.values() if row.state is State.QUEUED}
    assert sent == (decided if option == "--resend" else set())
    told = " ".join(capsys.readouterr().out.split())
    assert f"2 of 6 pushes in doubt: {next_step}" in told
    assert f"2 not decided: {NO_LIST}." in told
    assert "1 not decided: they are updates, not creates." in told
    assert "1 not decided: they have no natural key" in told


def test_all_of_none_is_no_error(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A job may run it every night."""
    before = asyncio.run(recorded(journal))

    assert main(["pushes", "resolve", "--all-absent", "--resend", "--journal", journal]) == 0

    assert "0 of 2 pushes in doubt" in capsys.readouterr().out
    assert asyncio.run(recorded(journal)) == before


def test_no_intent_is_not_the_only_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty variable of a script decides about nothing, though one push alone is in doubt."""
    journal = str(tmp_path / "one.db")
    asyncio.run(on_record(journal, [unresolved("aa1")]))
    before = asyncio.run(recorded(journal))

    assert main(["pushes", "resolve", "", "--abandon", "--journal", journal]) == 2

    assert "begins with ''" in capsys.readouterr().err
    assert asyncio.run(recorded(journal)) == before


@pytest.mark.parametrize(("key", "owner"), [("k-1", "cc1"), ("k-2", "dd1")])
def test_a_key_of_another_push_cannot_be_bound(
    journal: str, key: str, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A push has one intent, open or final: the decision is refused in words, and not made."""
    assert main(["pushes", "resolve", "aa1", "--journal", journal, "--bind", key]) == 1
    assert asyncio.run(recorded(journal))["aa1"].state is State.DOUBT
    refusal = f"{key} is already the key of intent {owner}"
    assert refusal in capsys.readouterr().err


def test_list_reads_a_journal_that_a_program_holds(
    journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows what is committed by then, and disturbs neither the program nor one that starts."""

    async def held() -> None:
        async with Store(journal) as store:
            kept = await store.lend()
            for number in range(2):
                await at_once(kept.add([new_row(LANE, b"{}", id=f"ee{number}")]))
                assert await asyncio.to_thread(main, ["pushes", "list", journal, "--json"]) == 0
                told = [json.loads(line)["intent"] for line in capsys.readouterr().out.splitlines()]
                assert told[6:] == [f"ee{one}" for one in range(number + 1)]

    asyncio.run(held())
    assert len(asyncio.run(recorded(journal))) == 8


async def test_list_reads_the_journal_of_another_process_while_it_writes(tmp_path: Path) -> None:
    """Rows come whole and in order, however the reading falls between the commits."""
    path = tmp_path / "j.db"
    seen = 0
    async with Store(path) as store:
        writing = asyncio.create_task(_many(await store.lend(), 300))
        while not writing.done():
            done = await run("pushes", "list", str(path), "--json")
            assert (done.code, done.stderr) == (0, "")
            rows = [json.loads(line)["intent"] for line in done.stdout.splitlines()]
            assert rows == [f"i{number}" for number in range(len(rows))]
            seen = max(seen, len(rows))
        await writing
    assert seen


async def _many(kept: Rows, count: int) -> None:
    for number in range(count):
        await at_once(kept.add([new_row(LANE, b"{}", id=f"i{number}")]))
        await asyncio.sleep(0.005)


def test_list_leaves_the_journal_as_it_is(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No lock, no file beside it, not a byte changed: also where it may only be read."""
    folder = Path(journal).parent
    before = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in folder.iterdir()}
    folder.chmod(0o500)
    try:
        assert main(["pushes", "list", journal]) == 0
    finally:
        folder.chmod(0o700)

    assert "6 pushes in" in capsys.readouterr().out
    after = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in folder.iterdir()}
    assert after == before


@pytest.mark.parametrize("held", [False, True], ids=["left", "held"])
def test_list_shows_nothing_of_a_damaged_journal(
    journal: str, held: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A push that cannot be read is said instead of half a list."""
    held_by = sqlite3.connect(journal) if held else None
    with closing(sqlite3.connect(journal)) as db:
        db.execute("UPDATE pushes SET document = substr(document, 2) WHERE id = 'aa1'")
        db.commit()

    assert main(["pushes", "list", journal]) == 1

    told = capsys.readouterr()
    assert (told.out, "cannot be trusted" in told.err) == ("", True)
    if held_by:
        held_by.close()


# Scopes, and databases


async def test_a_scope_is_decided_about_by_its_name(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --scope the commands see that scope alone, and name it in what they tell to do next."""
    await on_record(where, [unresolved("aa1")])
    await on_record(where, [unresolved("aa1"), unresolved("aa2")], "our books")
    scope = ["--journal", where, "--scope", "our books"]

    assert await asyncio.to_thread(main, ["pushes", "list", *scope]) == 0
    assert await asyncio.to_thread(main, ["pushes", "resolve", "aa1", "--abandon", *scope]) == 0

    told = " ".join(capsys.readouterr().out.split())
    assert "2 pushes in scope 'our books' of" in told
    assert (await recorded(where))["aa1"].state is State.DOUBT
    assert (await recorded(where, "our books"))["aa1"].state is State.CLOSED
    assert await asyncio.to_thread(main, ["pushes", "resolve", "aa2", "--resend", *scope]) == 0
    assert "--scope 'our books'`." in " ".join(capsys.readouterr().out.split())


def test_a_scope_needs_a_journal(capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--company", "c", "--connection", "b", "--type", "invoices"]

    assert main(["push", "-", *to, "--scope", "books"]) == 2

    assert "--scope and --schema need --journal" in capsys.readouterr().err


async def test_a_database_is_named_without_its_password(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither what is shown nor the command to be run next has it."""
    where = (await postgres.new_database()).replace("postgres:@", "postgres:s3cret@")
    await on_record(where, [unresolved("aa1"), unresolved("aa2")])

    assert await asyncio.to_thread(main, ["pushes", "list", where]) == 0
    command = ["pushes", "resolve", "aa1", "--resend", "--journal", where]
    assert await asyncio.to_thread(main, command) == 0

    told = " ".join(capsys.readouterr().out.split())
    assert "2 pushes in postgresql://" in told
    assert "pushes resume --journal 'postgresql://" in told
    assert "s3cret" not in told


async def test_a_decision_is_made_beside_the_process_that_carries_the_pushes(
    postgres: Server,
) -> None:
    """In a database nobody has to stop for it, and whoever has the company hears of it."""
    where = await postgres.new_database()
    await on_record(where, [unresolved("aa1")])
    async with Store(where) as store:
        kept = await store.lend()
        await kept.take(LANE.company_id)
        news = kept.news()
        assert isinstance(news, AsyncGenerator)
        hearing = asyncio.ensure_future(anext(news))
        await asyncio.sleep(1.0)  # until it listens
        command = ["pushes", "resolve", "aa1", "--abandon", "--journal", where]
        assert await asyncio.to_thread(main, command) == 0
        async with asyncio.timeout(30):
            assert await hearing == LANE.company_id
        (decided,) = await kept.rows(ids=["aa1"])
        await news.aclose()

    assert decided.state is State.CLOSED
