"""What is wrong after a crash test: what was pushed, and what was written, against what had to be.

A push is known by its content (or one field of it, if that is asked for), in which ids of records
that were pushed before stand for these records: the service gives other ids in each round.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import Factory, define, frozen

from integration_sdk._push.agreement import value_at
from integration_sdk._store.row import Row, State
from integration_sdk._store.sqlite import APPLICATION_ID
from integration_sdk._store.store import Store
from integration_sdk.errors import JournalError
from integration_sdk.sandbox import Operation
from integration_sdk.testing._crashes import CrashPlan, Event, Expected, Round
from integration_sdk.testing._written import records_in

Kind = Literal[
    "doubled", "lost", "mislinked", "unexpected", "missing", "stale", "unreadable", "stuck"
]
KINDS: Final[dict[Kind, str]] = {
    "doubled": "is there more often than after an undisturbed run",
    "lost": "was to be pushed, and never was",
    "mislinked": "names another record than after an undisturbed run",
    "unexpected": "is not pushed by an undisturbed run",
    "missing": "is in the books, and not in the files",
    "stale": "is in the files, but not as it is in the books",
    "unreadable": "cannot be read",
    "stuck": "does not end well any more, though nothing disturbs it",
}
_LABELS: Final = ("Number", "reference", "Name", "name", "description", "id")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|made:[0-9a-f]{16}")
_MAGIC: Final = b"SQLite format 3\0"
SHOWN: Final = 3
FINDINGS_SHOWN: Final = 5


@frozen
class Finding:
    """What is wrong: *count* records of a round, and *where* it came about, in its order."""

    kind: Kind
    what: str
    round: int
    where: tuple[str, ...] = ()
    count: int = 1

    def __str__(self) -> str:
        return f"{self.kind}, round {self.round}: {self.what}"


@define
class CrashReport:
    """What a crash test came to.

    Attributes:
        rounds: The first one was undisturbed.
        findings: In the order of the rounds.
        in_doubt: Records that are not there, and that a journal of the program names IN_DOUBT.
        found_after: Kills and freezes until each kind was found.
    """

    rounds: list[Round]
    findings: list[Finding] = Factory(list)
    in_doubt: int = 0
    found_after: dict[str, int] = Factory(dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def count(self, what: str) -> int:
        """Return how often a program ``began``, was ``killed``, ``frozen``, sent a ``request``."""
        return sum(one.count(what) for one in self.rounds[1:])

    def __str__(self) -> str:
        shown = self.findings[:FINDINGS_SHOWN]
        lines = ["\n  ".join([str(one), *one.where]) for one in shown]
        more = len(self.findings) - len(shown)
        return "\n".join([*lines, f"and {more:,} more"] if more else lines)


async def judge(rounds: Sequence[Round], plan: CrashPlan) -> CrashReport:
    """Compare each round with the first."""
    report = CrashReport(list(rounds))
    usual = _Pushed.of(rounds[0], plan.identity)
    struck = 0
    for round_ in rounds:
        struck += round_.count("killed") + round_.count("frozen")
        found = [one async for one in _judged(round_, usual, plan, report)]
        for finding in found:
            report.found_after.setdefault(finding.kind, struck)
        report.findings += found
    return report


async def _judged(round_: Round, usual: _Pushed, plan: CrashPlan, report: CrashReport) -> Any:
    if round_.stuck:
        yield Finding("stuck", round_.stuck, round_.number, _strikes(round_))
        return
    journal, problems = await _journals(round_.folder)
    for problem in problems:
        yield Finding("unreadable", problem, round_.number, _strikes(round_))
    if round_.number:
        doubts = {row.payload_hash for row in journal if row.state is State.DOUBT}
        pushed = _Pushed.of(round_, plan.identity)
        lost, unexpected = usual.lacking(pushed), pushed.lacking(usual)
        in_doubt = {name for name in lost if usual.hashes(name) & doubts}
        report.in_doubt += len(in_doubt)
        for one in _compared(usual, pushed, set(lost) - in_doubt, unexpected):
            yield one
        for finding in _misjournalled(round_, journal):
            yield finding
    for expected in plan.expected:
        for finding in await asyncio.to_thread(_files, round_, expected):
            yield finding


# What was pushed


@define
class _Pushed:
    """The pushes of a round, by what they push.

    Attributes:
        standing: Those that have had an effect, or will.
        all: Those that were refused, too.
        bare: Each name without what it links to.
    """

    round: Round
    standing: dict[str, list[Operation]] = Factory(lambda: defaultdict(list))
    all: dict[str, list[Operation]] = Factory(lambda: defaultdict(list))
    bare: dict[str, str] = Factory(dict)
    companies: Counter[str] = Factory(Counter)

    @classmethod
    def of(cls, round_: Round, identity: str | None) -> _Pushed:
        pushed = cls(round_)
        pushed.companies.update(round_.companies)
        made: dict[str, str] = {}
        for operation in round_.operations:
            name = _name(operation, made, identity)
            pushed.all[name].append(operation)
            pushed.bare[name] = _UUID.sub("*", name)
            if operation.status in {"Success", "Pending"}:
                pushed.standing[name].append(operation)
            if operation.verb == "POST" and operation.record_id:
                digest = hashlib.sha256(name.encode()).hexdigest()[:16]
                made[operation.record_id] = f"made:{digest}"
        return pushed

    def lacking(self, other: _Pushed) -> list[str]:
        """Return what this round has pushed with effect, and the *other* has not pushed at all."""
        return [name for name in self.standing if name not in other.all]

    def hashes(self, name: str) -> set[str]:
        """Return the hashes of the bodies that pushed *name*."""
        return {hashlib.sha256(one.sent).hexdigest() for one in self.all[name]}


def _name(operation: Operation, made: Mapping[str, str], identity: str | None) -> str:
    record = operation.record
    named = value_at(record, identity) if identity and isinstance(record, dict) else None
    what = named if named is not None else _linked(record, made)
    record_id = operation.record_id if operation.verb != "POST" else None
    place = operation.verb, operation.company, operation.connection, operation.data_type
    return json.dumps([*place, made.get(record_id or "", record_id), what], sort_keys=True)


def _linked(value: Any, made: Mapping[str, str]) -> Any:
    """Return a record in which ids of records that were pushed stand for these."""
    if isinstance(value, dict):
        return {name: _linked(inner, made) for name, inner in value.items()}
    if isinstance(value, list):
        return [_linked(inner, made) for inner in value]
    return made.get(value, value) if isinstance(value, str) else value


def _compared(
    usual: _Pushed, pushed: _Pushed, lost: set[str], unexpected: Iterable[str]
) -> Iterator[Finding]:
    number = pushed.round.number
    for name, operations in pushed.standing.items():
        most = max(1, len(usual.standing.get(name, ())))
        if len(operations) > most and operations[0].verb in {"POST", "ATTACH"}:
            bodies = {one.sent for one in operations}
            what = f"{_label(operations[0])} is there {len(operations)} times"
            yield Finding("doubled", what, number, _trace(pushed.round, bodies))
    for name, count in pushed.companies.items():
        if count > usual.companies[name] > 0:
            what = f"company {name!r} is there {count} times"
            yield Finding("doubled", what, number, _strikes(pushed.round))
    missed = {usual.bare[name]: name for name in lost}
    for name in unexpected:
        (operation, *_) = pushed.all[name]
        twin = missed.pop(pushed.bare[name], None)
        lost.discard(twin or "")
        kind: Kind = "mislinked" if twin else "unexpected"
        what = f"{_label(operation)} {KINDS[kind]}"
        yield Finding(kind, what, number, _trace(pushed.round, {operation.sent}))
    for name in (one for one in usual.standing if one in lost):
        (operation, *_) = usual.standing[name]
        where = _trace(pushed.round, {operation.sent}) or _never_sent(usual, pushed, operation)
        yield Finding("lost", f"{_label(operation)} {KINDS['lost']}", number, where)


def _never_sent(usual: _Pushed, pushed: _Pushed, operation: Operation) -> tuple[str, ...]:
    sent = [one for one in usual.round.requests if one.body == operation.sent]
    told = [f"no life sent it; undisturbed, it is request {one.number}" for one in sent[:1]]
    return (*_strikes(pushed.round), *told)


def _label(operation: Operation) -> str:
    """Name the record of a push for people."""
    record = operation.record if isinstance(operation.record, dict) else {}
    named = (str(value) for end in _LABELS for key, value in record.items() if key.endswith(end))
    label = next(named, operation.record_id or json.dumps(record)[:60])
    return f"{operation.data_type} {label!r}"


# Where it came about


def _trace(round_: Round, bodies: set[bytes]) -> tuple[str, ...]:
    """Return the requests with one of *bodies*, and what happened to the lives that sent them."""
    sent = [one for one in round_.requests if one.body in bodies]
    lives = {one.life for one in sent}
    told = [
        _told(event)
        for event in round_.events
        if event in sent or (event.life in lives and event.what in {"killed", "frozen"})
    ]
    return tuple(told) if sent else ()


def _strikes(round_: Round) -> tuple[str, ...]:
    return tuple(_told(one) for one in round_.events if one.what in {"killed", "frozen"})


def _told(event: Event) -> str:
    if event.what != "request":
        return f"life {event.life} was {event.text}"
    answers = {None: "was not answered", 0: "was cut off"}
    answer = answers.get(event.status, f"was answered {event.status}")
    return f"life {event.life}, request {event.number}: {event.text} {answer}"


# Journals


async def _journals(folder: Path) -> tuple[list[Row], list[str]]:
    """Return what journals in a folder hold, and what is wrong with them."""
    rows: list[Row] = []
    problems: list[str] = []
    for path in await asyncio.to_thread(
        lambda: [one for one in folder.rglob("*") if _is_ours(one)]
    ):
        try:
            rows += await Store(path).recorded()
        except JournalError as error:
            problems.append(str(error))
    return rows, problems


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(72)
    return head.startswith(_MAGIC) and head[68:72] == APPLICATION_ID.to_bytes(4)


def _misjournalled(round_: Round, journal: Iterable[Row]) -> Iterator[Finding]:
    known = {one.key: one for one in round_.operations}
    for row in journal:
        owner = known.get(row.key or "")
        if (
            owner
            and row.method == "POST"
            and hashlib.sha256(owner.sent).hexdigest() != row.payload_hash
        ):
            what = f"the journal takes the push of {_label(owner)} for that of {row.reference!r}"
            yield Finding("mislinked", what, round_.number, _trace(round_, {owner.sent}))


# What was written


def _files(round_: Round, expected: Expected) -> list[Finding]:
    return list(_file_findings(round_, expected))


def _file_findings(round_: Round, expected: Expected) -> Iterator[Finding]:
    books = round_.books[expected.data_type]
    company_of = {key: company for company, records in books.items() for key in records}
    held: dict[str, Counter[str]] = defaultdict(Counter)
    try:
        for record in records_in(round_.folder / expected.path, expected.data_type):
            held[str(record.get(expected.key))][_moment(record.get("modifiedDate"))] += 1
    except ValueError as error:
        yield Finding("unreadable", str(error), round_.number, _strikes(round_))
        return
    doubled: dict[str, list[str]] = defaultdict(list)
    stale: dict[str, list[str]] = defaultdict(list)
    for key, states in held.items():
        company = company_of.get(key, "")
        if max(states.values()) > 1:
            doubled[company].append(key)
        if company and (newest := max(states)) and newest != _moment(books[company][key]):
            stale[company].append(key)
        if not company:
            yield Finding("unexpected", f"{key!r} is in no books", round_.number)
    for company, records in books.items():
        missing = [key for key in records if key not in held]
        for kind, keys in _of_kind(missing, doubled[company], stale[company]):
            what = f"{_many(keys, expected.data_type)} of company {company}"
            where = _read_by(round_, company, expected.data_type, list(records), keys)
            yield Finding(kind, what, round_.number, where, len(keys))


def _of_kind(
    missing: list[str], doubled: list[str], stale: list[str]
) -> Iterator[tuple[Kind, list[str]]]:
    kinds: list[tuple[Kind, list[str]]] = [
        ("missing", missing),
        ("doubled", doubled),
        ("stale", stale),
    ]
    yield from ((kind, keys) for kind, keys in kinds if keys)


def _many(keys: list[str], data_type: str) -> str:
    more = f" and {len(keys) - SHOWN:,} more" if len(keys) > SHOWN else ""
    return f"{len(keys):,} {data_type} ({', '.join(keys[:SHOWN])}{more})"


def _moment(value: object) -> str:
    """Return a moment, of a file or of the books, to the second and in UTC."""
    if value is None:
        return ""
    text = re.sub(r"[.,]\d+", "", str(value)).replace(" ", "T")
    return text.removesuffix("Z").removesuffix("+00:00")


def _read_by(
    round_: Round, company: str, data_type: str, order: list[str], keys: list[str]
) -> tuple[str, ...]:
    """Return the requests whose pages had the first of *keys*, and the strikes on these lives."""
    place = order.index(keys[0])
    path = f"/companies/{company}/data/{data_type}"
    pages = [one for one in round_.requests if one.path == path and _covers(one, place)]
    lives = {one.life for one in pages}
    told = [
        f"{_told(event)} (its page {event.query.get('page', 1)})"
        if event in pages
        else _told(event)
        for event in round_.events
        if event in pages or (event.life in lives and event.what in {"killed", "frozen"})
    ]
    return tuple(told) or _strikes(round_)


def _covers(event: Event, place: int) -> bool:
    page, size = event.query.get("page", "1"), event.query.get("pageSize", "100")
    if not (page.isdigit() and size.isdigit()) or "query" in event.query:
        return False
    return (int(page) - 1) * int(size) <= place < int(page) * int(size)
