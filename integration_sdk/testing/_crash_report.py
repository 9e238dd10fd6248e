"""What is wrong after a crash test: what was pushed and written, against the undisturbed run."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import Factory, define, frozen

from integration_sdk._checks import needed
from integration_sdk._push.agreement import value_at
from integration_sdk._store.row import State
from integration_sdk._store.sqlite import APPLICATION_ID
from integration_sdk._store.store import Store
from integration_sdk.sandbox import Operation

SHOWN: Final = 5
CREATES: Final = frozenset({"POST", "ATTACH"})


@define(eq=False)
class Round:
    """What one round came to: a folder with what the program left, and what the sandbox recorded.

    Attributes:
        strikes: Each kill and freeze, in words.
        counts: How many times it was ``killed``, ``frozen``, ``started``; ``requests``, ``writes``.
        stuck: Why the round was given up, or "".
        pushes: Every push that the service has recorded, oldest first.
    """

    number: int
    folder: Path
    strikes: list[str] = Factory(list)
    counts: Counter[str] = Factory(Counter)
    seconds: float = 0.0
    stuck: str = ""
    pushes: list[Operation] = Factory(list)


@frozen
class Finding:
    """What is wrong in a round: records are doubled, lost or missing, or it is stuck."""

    kind: str
    round: int
    what: str


@define
class CrashReport:
    """What a crash test came to; as text it is the first findings, with the strikes around them.

    Attributes:
        rounds: The first one was undisturbed.
        findings: In the order of the rounds.
        in_doubt: Records that are not there, and that a journal of the program names in doubt.
    """

    rounds: list[Round]
    findings: list[Finding] = Factory(list)
    in_doubt: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def count(self, what: str) -> int:
        """How many times the program was ``killed``, ``frozen``, ``started``; ``requests``."""
        return sum(one.counts[what] for one in self.rounds[1:])

    def __str__(self) -> str:
        lines = []
        for one in self.findings[:SHOWN]:
            lines.append(f"{one.kind}, round {one.round}: {one.what}")
            lines += [f"  {strike}" for strike in self.rounds[one.round].strikes]
        more = len(self.findings) - SHOWN
        return "\n".join([*lines, f"and {more:,} more"] if more > 0 else lines)

    async def judge(self, *, identity: str | None, files: Sequence[str]) -> None:
        """Compare each round with the first."""
        usual = _pushed(self.rounds[0], identity)
        for round_ in self.rounds:
            if round_.stuck:
                self._found(round_, "stuck", f"it does not end well any more: {round_.stuck}")
                continue
            pushed = _pushed(round_, identity)
            lost = [usual[content][0] for content in usual.keys() - pushed.keys()]
            doubts = await _in_doubt(round_.folder) if lost else set()
            for one in lost:
                if hashlib.sha256(one.sent).hexdigest() in doubts:
                    self.in_doubt += 1
                else:
                    self._found(round_, "lost", f"never pushed: {_label(one)}")
            for content, (one, *more) in pushed.items():
                if len(more) >= max(1, len(usual.get(content, ()))) and one.verb in CREATES:
                    self._found(round_, "doubled", f"{1 + len(more)} times: {_label(one)}")
            for path in files:
                self._compare(round_, path)

    def _found(self, round_: Round, kind: str, what: str) -> None:
        self.findings.append(Finding(kind, round_.number, what))

    def _compare(self, round_: Round, path: str) -> None:
        try:
            usually, held = (
                Counter(str(record.get("id")) for record in _records(one.folder / path))
                for one in (self.rounds[0], round_)
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._found(round_, "missing", f"{path} cannot be read: {why}")
            return
        for kind, ids in (("missing", usually - held), ("doubled", held - usually)):
            if ids:
                some = ", ".join(list(ids)[:3])
                self._found(round_, kind, f"{len(ids):,} records in {path}, such as {some}")


def _pushed(round_: Round, identity: str | None) -> dict[str, list[Operation]]:
    """Return the pushes that have had an effect, or will, by what they push."""
    pushed: dict[str, list[Operation]] = defaultdict(list)
    for one in round_.pushes:
        if one.status in {"Success", "Pending"}:
            what = identity and value_at(one.record, identity)
            record_id = None if one.verb == "POST" else one.record_id
            place = one.verb, one.company, one.connection, one.data_type, record_id
            pushed[json.dumps([*place, what or one.record], sort_keys=True)].append(one)
    return pushed


def _label(push: Operation) -> str:
    return f"{push.verb} {push.data_type} {json.dumps(push.record)[:80]}"


async def _in_doubt(folder: Path) -> set[str]:
    """Return the hashes of the records that journals in *folder* name in doubt."""
    rows = [row for path in _journals(folder) for row in await Store(path)._recorded()]
    return {row.payload_hash for row in rows if row.state is State.DOUBT}


def _journals(folder: Path) -> list[Path]:
    ours = APPLICATION_ID.to_bytes(4)
    return [path for path in folder.rglob("*.db") if path.read_bytes()[68:72] == ours]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, or of all files below a folder, such as that of a pull."""
    if path.is_dir():
        for one in sorted(path.iterdir()):
            if not one.name.startswith(("_", ".")):
                yield from _records(one)
    elif path.suffix == ".parquet":
        yield from needed("pyarrow.parquet", "arrow", "Parquet").read_table(path).to_pylist()
    else:
        text = path.read_bytes()
        lines = gzip.decompress(text) if path.suffix == ".gz" else text
        yield from map(json.loads, lines.splitlines())
