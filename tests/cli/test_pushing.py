"""`push` and `pushes resume`: what comes out for what goes in, and what a journal makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen

from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import here, invoice, posts, pushed, resumed, to, written
from tests.support.sandbox_support import turned

pytestmark = pytest.mark.virtual_time
GOOD = [json.dumps(invoice(number)) for number in range(4)]
ODD = [
    f"\ufeff {GOOD[0]}\r",
    "",
    "not json",
    "[1, 2]",
    '{"a": 1}',
    '{"amount": 1e99999999999999999999}',
    f" \t{GOOD[1]} ",
]
BY_NUMBER = ("--reference", "invoiceNumber")


@frozen
class Journey:
    """A push of *lines* with *options*: *code*, status by line, *posts*, and words that it says."""

    code: int
    statuses: dict[int, str]
    posts: int
    says: str
    lines: list[str] = GOOD
    options: tuple[str, ...] = BY_NUMBER
    fault: Callable[[Sandbox], object] = lambda _: None


ALL = dict.fromkeys(range(1, 5), "SUCCESS")
JOURNEYS = {
    "all succeed": Journey(0, ALL, 4, "4 SUCCESS in"),
    "one fails": Journey(
        1, {**ALL, 1: "FAILED"}, 4, "3 SUCCESS, 1 FAILED",
        fault=lambda sandbox: sandbox.faults.fail_next_push("period \u202e closed"),
    ),
    "lines without a record": Journey(
        1, {1: "SUCCESS", 3: "INVALID", 4: "INVALID", 5: "INVALID", 6: "INVALID", 7: "SUCCESS"},
        2, "2 SUCCESS, 4 INVALID", lines=ODD,
    ),
    "no name in the record": Journey(
        1, {1: "INVALID"}, 0, "1 INVALID", lines=['{"a": 1}'], options=("--reference", "a.b"),
    ),
    "refused by the options": Journey(
        1, {1: "INVALID", 2: "SUCCESS"}, 1, "1 SUCCESS, 1 INVALID",
        lines=['{"invoiceNumber": "x"}', GOOD[0]], options=("--check", "options"),
    ),
    "an answer is lost": Journey(
        1, {**ALL, 1: "IN_DOUBT"}, 4, "pushes resolve INTENT",
        fault=lambda sandbox: sandbox.faults.status(502, "a proxy", times=1, route="POST /push/"),
    ),
    "a lost answer is found": Journey(
        0, ALL, 4, "4 SUCCESS in", options=("--natural-key", "invoiceNumber", "--patience", "20"),
        fault=lambda sandbox: sandbox.faults.lose_answer(times=1, route="POST /push/"),
    ),
    "the key is revoked": Journey(
        1, {}, 0, "Stopped: ",
        fault=lambda sandbox: sandbox.faults.status(401, route="POST /push/"),
    ),
    "a quota is spent": Journey(
        1, {}, 0, "Not before ", options=("--max-pause", "60"),
        fault=lambda sandbox: sandbox.faults.status(
            429, headers={"Retry-After": "3600"}, route="POST /push/"
        ),
    ),
    "quiet, and nothing": Journey(0, {}, 0, "", lines=[], options=("--quiet",)),
    "the key is wrong": Journey(1, {}, 0, "answered 401", options=("--api-key", "wrong")),
}  # fmt: skip


@pytest.mark.parametrize("name", JOURNEYS)
async def test_each_line_has_an_outcome(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    """With its number, reference, status and key, or why there is none; a summary on stderr."""
    journey = JOURNEYS[name]
    (tmp_path / "r").write_text("\n".join(journey.lines))
    journey.fault(sandbox)
    search = () if "--patience" in journey.options else ("--patience", "0.2")
    lane = to(sandbox.companies[0].connections[0])

    done = await here("push", tmp_path / "r", *lane, *journey.options, *search, sandbox=sandbox)

    assert done.code == journey.code, done.stderr
    assert journey.says in done.stderr
    assert "\u202e" not in done.stdout  # it would turn the text round
    assert bool(done.stderr) == ("--quiet" not in journey.options)
    if journey.statuses or not journey.lines:
        assert {one["line"] for one in done.lines} == set(journey.statuses)
        assert done.statuses == sorted(journey.statuses.values())
        kept = {one.key for one in sandbox.pushes}
        assert {one["key"] for one in done.lines if "key" in one} == kept - {None}
        assert posts(sandbox) == journey.posts
    for one in done.lines:
        assert one["status"] == "SUCCESS" or one["errors"]


async def test_another_format_than_ndjson_is_named(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Each line is INVALID, and says what the input has to be and how it is made."""
    for content in (b"a,b\n1,2\n", b"[1,\n2]\n", b"\x1f\x8b\x08\n", b"\xff\xfe{\n"):
        (tmp_path / "r").write_bytes(content)
        done = await pushed(sandbox, books, tmp_path / "r")

        assert (done.code, set(done.statuses)) == (1, {"INVALID"})
        assert "The input must be one JSON object per line (NDJSON)" in done.stdout
        assert "`mlr --icsv --ojsonl cat FILE`" in done.stdout


async def test_money_is_sent_as_it_was_written(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A fraction that no float holds reaches the service digit by digit."""
    (tmp_path / "r").write_text(GOOD[1].replace("120.5", "12345678901234567.10"))

    await pushed(sandbox, books, tmp_path / "r")

    (body,) = (seen.body for seen in sandbox.requests if seen.method == "POST")
    assert b"12345678901234567.10" in body


async def test_a_refusal_that_is_not_about_the_record_stops_the_reading(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A connection that does not exist is not tried for the rest of a long file."""
    source = written(tmp_path / "r", map(invoice, range(5000)))
    wrong = Connection("nowhere", books.company_id, books.package, books.created)

    done = await pushed(sandbox, wrong, source)

    assert done.code == 1
    assert posts(sandbox) < 300
    assert "Stopped: POST" in done.stderr


# With a journal, again


MOVED = [invoice(3), turned(invoice(1)), invoice(0), invoice(2)]
OTHER = invoice(1) | {"dueDate": "2025-01-01"}
AGAIN: dict[str, tuple[list[object], tuple[str, ...], dict[int, str], int]] = {
    "the same": ([invoice(0), invoice(1)], (), {1: "SUCCESS", 2: "SUCCESS"}, 0),
    "moved, and more": (MOVED, (), ALL, 2),
    "equal lines": ([invoice(0), invoice(0)], (), {1: "SUCCESS", 2: "SUCCESS"}, 1),
    "corrected": ([invoice(0), OTHER], (), {1: "SUCCESS", 2: "SUCCESS"}, 1),
    "corrected under its name": ([invoice(0), OTHER], BY_NUMBER, {1: "SUCCESS", 2: "INVALID"}, 0),
    "a name twice": ([invoice(0), invoice(0)], BY_NUMBER, {1: "SUCCESS", 2: "SUCCESS"}, 0),
}


@pytest.mark.parametrize("name", AGAIN)
async def test_a_second_run_sends_only_what_is_new(
    sandbox: Sandbox, books: Connection, tmp_path: Path, name: str
) -> None:
    """Records are known by content wherever they stand, or by the name that they are given."""
    records, options, statuses, more = AGAIN[name]
    journal = ("--journal", tmp_path / "j.db", *options)
    first = written(tmp_path / "a", [invoice(0), invoice(1)])
    await here("push", first, *to(books), *journal, sandbox=sandbox)

    again = await here(
        "push", written(tmp_path / "b", records), *to(books), *journal, sandbox=sandbox
    )

    assert {one["line"]: one["status"] for one in again.lines} == statuses
    assert posts(sandbox) == 2 + more


async def test_what_is_in_doubt_waits_for_a_decision(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """No run sends again what may have been pushed, until `resolve` says so; then it is sent once.

    `resume` and `push` carry out the decision alike.
    """
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"
    sandbox.faults.status(502, "a proxy's page", times=1, route="POST /push/")

    first = await pushed(sandbox, books, source, journal=journal)
    again = await pushed(sandbox, books, source, journal=journal)
    later = await resumed(sandbox, journal)
    intent = next(line["intent"] for line in first.lines if "intent" in line)
    decided = await here("pushes", "resolve", intent[:8], "--journal", journal, "--resend")
    done = await resumed(sandbox, journal)
    after = await pushed(sandbox, books, source, journal=journal)

    assert (first.code, again.code, later.code) == (1, 1, 1)
    assert first.statuses == again.statuses == ["IN_DOUBT", "SUCCESS", "SUCCESS"]
    assert later.statuses == ["IN_DOUBT"]
    assert f"decide about intent {intent}" in first.stdout
    assert (decided.code, done.code, after.code) == (0, 0, 0)
    assert (done.statuses, after.statuses) == (["SUCCESS"], ["SUCCESS"] * 3)
    assert (posts(sandbox), len(sandbox.pushes)) == (4, 3)


# Without pushing


async def test_a_dry_run_says_what_a_push_would_do(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """What is refused and why, what is on record, how many requests; a push then does just that."""
    journal = tmp_path / "j.db"
    dry = ("--journal", journal, *BY_NUMBER, "--dry-run")
    wrong = invoice(7) | {"lineItems": "none"}
    source = written(tmp_path / "r", [*map(invoice, range(6)), wrong, invoice(0)])
    with source.open("a") as file:
        print("no record", file=file)

    done = await here("push", source, *to(books), *dry, "--json", sandbox=sandbox)
    shown = await here("push", source, *to(books), *dry, sandbox=sandbox)
    was_made, sent = journal.exists(), posts(sandbox)
    named = {"journal": journal, "reference": "invoiceNumber", "check": "options"}
    real = await pushed(sandbox, books, source, **named)
    after = await here("push", source, *to(books), *dry, "--json", sandbox=sandbox)

    (found,), (then,) = done.lines, after.lines
    assert (done.code, shown.code, real.code) == (1, 1, 1)
    assert (found["new"], found["known"]) == (6, {"repeated": 1})
    assert [one["line"] for one in found["refused"]] == [7, 9]
    assert "lineItems" in found["refused"][0]["errors"][0]
    assert shown.stdout.startswith("To send: 6, ")
    assert "line 7 INV-7: lineItems" in shown.stdout
    assert (was_made, sent, posts(sandbox)) == (False, 0, found["new"])
    assert (then["new"], then["known"]) == (0, {"Success": 7})


async def test_a_dry_run_is_a_gate(sandbox: Sandbox, books: Connection, tmp_path: Path) -> None:
    """`push --dry-run ... && push ...` pushes nothing to what does not exist."""
    source = written(tmp_path / "r", [invoice(1)])
    for part in ("--company", "--connection", "--type"):
        given = to(books)
        given[given.index(part) + 1] = "nowhere"
        done = await here("push", source, *given, "--dry-run", sandbox=sandbox)

        assert (done.code, done.stdout) == (1, "")
        assert "nowhere" in done.stderr
        assert "answered 404: " in done.stderr
