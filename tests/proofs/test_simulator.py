"""No history breaks a promise of the push room, and each seeded fault is found.

The referee is refereed: a fault is a change of the package's text, in a copy of it. Some history
must show the violation named. `pytest -m long tests/proofs/test_simulator.py` runs all, and as many
histories as the argument rests on (``SIMULATED_HISTORIES=1000000``; a third of it with two owners).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import Factory, frozen

from tests.proofs import simulator

ROOT = Path(__file__).parents[2]
HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "3000"))
LONG = pytest.mark.long


def assert_clean(tally: simulator.Tally) -> None:
    assert not tally.violations, tally.violations[:10]


def test_one_owner_keeps_every_promise() -> None:
    """Crashes, strangers, troubles and lists of every kind, with a journal and without."""
    told = simulated(ROOT, "--histories", "150")
    assert "violations: 0" in told, told


def test_one_owner_with_a_file_keeps_every_promise() -> None:
    """SQLite itself, opened anew by each process; its thread has tests of its own."""
    told = simulated(ROOT, "--histories", "40", "--weather", '{"sqlite": true}')
    assert "violations: 0" in told, told


def test_two_owners_keep_every_promise() -> None:
    """Killed, frozen, thawed and cut off, on a store whose notifications get lost."""
    told = simulated(ROOT, "--histories", "60", "--owners", "2")
    assert "violations: 0" in told, told


ODD_LISTS: dict[str, dict[str, Any]] = {
    "omits": {"omits": 0.1},
    "omits, exclusive": {"omits": 0.1, "exclusive": True},
    "repeats": {"repeats": 0.05},
    "shuffles": {"shuffles": 0.3},
}


@LONG
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("owners", "share"), [(1, 1), (2, 3)])
def test_many_histories(owners: int, share: int) -> None:
    """As many as the argument rests on."""
    seeds = range(20_000, 20_000 + HISTORIES // share)
    assert_clean(simulator.side_by_side(seeds, owners, os.cpu_count() or 1))


@LONG
@pytest.mark.timeout(0)
def test_many_histories_with_a_file() -> None:
    """A tenth as many: the store is another, the shell the same."""
    seeds = range(HISTORIES // 10)
    assert_clean(simulator.side_by_side(seeds, 1, os.cpu_count() or 1, sqlite=True))


@LONG
@pytest.mark.timeout(0)
@pytest.mark.parametrize("odd", ODD_LISTS)
def test_many_lists_that_are_not_as_documented(odd: str) -> None:
    """Rows left out, twice or in disorder leave pushes in doubt: none is linked to another's."""
    seeds = range(HISTORIES // 5)
    assert_clean(simulator.side_by_side(seeds, 1, os.cpu_count() or 1, **ODD_LISTS[odd]))


# Seeded faults


@frozen
class Fault:
    """A change of the text, and the violation that it must lead to, within so many histories."""

    violation: str
    changes: tuple[tuple[str, str, str], ...]
    owners: int = 1
    weather: dict[str, Any] = Factory(dict)
    histories: int = 600


TABLE, SENDING = "integration_sdk/_push/table.py", "integration_sdk/_push/sending.py"
SEARCH, EVIDENCE = "integration_sdk/_push/search.py", "integration_sdk/_push/evidence.py"
DISPATCHER, WIRE = "integration_sdk/_push/dispatcher.py", "integration_sdk/_push/wire.py"
COMPANIES = "integration_sdk/_push/companies.py"
SQLITE = "integration_sdk/_store/sqlite.py"
MEMORY, WORLD = "integration_sdk/_store/memory.py", "tests/proofs/simulated_world.py"

FAULTS: dict[str, Fault] = {
    # What a file enforces
    "a file lets a push key have two owners": Fault(
        "wrong link",
        ((SQLITE, "UNIQUE (scope, id), UNIQUE (scope, key)", "UNIQUE (scope, id)"),),
        weather={"sqlite": True},
    ),
    # What a state and an answer mean
    "SENDING restarts as QUEUED": Fault(
        "double send",
        (
            (
                TABLE,
                "_E.LOST: _S.LOST,\n            _E.RESTARTED: _S.LOST",
                "_E.LOST: _S.LOST,\n            _E.RESTARTED: _S.QUEUED",
            ),
        ),
    ),
    "a lost answer is sent again later": Fault(
        "double send",
        (
            (
                SENDING,
                "if event is Event.REFUSED and again and _is_for_now(result):",
                "if again and (event is Event.LOST or _is_for_now(result)):",
            ),
        ),
        weather={"idempotent": False},
    ),
    "a proxy's refusal is believed": Fault(
        "silent loss",
        ((TABLE, "is_own = is_error_body(result.body)", "is_own = True"),),
    ),
    "a key that was listed before is believed": Fault(
        "wrong link",
        ((SENDING, "        return listed or ", "        return False and "),),
    ),
    "sent without a row": Fault(
        "sent without a row",
        (
            (
                SENDING,
                "row = await d.step(\n                    row,\n                    Event.SENT,",
                "row = after(\n                    row,\n                    Event.SENT,",
            ),
        ),
    ),
    "a carrier that a stranger cancels is forgotten": Fault(
        "no outcome",
        (
            (
                SENDING,
                "        except asyncio.CancelledError:\n"
                "            d.tasks.start(d.restart(row.id))\n",
                "        except asyncio.CancelledError:\n",
            ),
        ),
        weather={"cancels": 0.5},
    ),
    # What a listing proves
    "no rivals": Fault(
        "wrong link",
        (
            (EVIDENCE, "return bool(push & self._contested)", "return False"),
            (EVIDENCE, "return len(self.rows) > (row.id in self.rows)", "return False"),
        ),
        weather={"twins": 1.0, "echo": "full"},
    ),
    "a decided row is no rival": Fault(
        "wrong link",
        ((TABLE, "_S.LOST, _S.DOUBT, _S.CLOSED})", "_S.LOST, _S.DOUBT})"),),
        weather={"twins": 1.0, "trouble": 0.9, "lag": 40.0},
        histories=3000,
    ),
    "a row that is left is no rival": Fault(
        "wrong link",
        (
            (
                DISPATCHER,
                "if held is None or not may_own_unclaimed(held):\n            self._drop(row)",
                "self._drop(row)",
            ),
        ),
        weather={"twins": 1.0, "disk": 0.05, "crash": 0.0, "echo": "full", "lag": 0.0},
        histories=3000,
    ),
    "an empty snapshot": Fault(
        "wrong link",
        (
            (
                SENDING,
                "        return snapshot\n\n    # Once more",
                '        return snapshot and Snapshot(frozenset(), id="x")\n\n    # Once more',
            ),
        ),
        weather={"exclusive": True},
    ),
    "a listing ends where other rows' snapshots do": Fault(
        "silent loss",
        ((WIRE, "until = union if all(known) else frozenset[str]()", "until = union"),),
        weather={"page": 2, "steps": False, "unlisted": 0.3},
        histories=3000,
    ),
    "one new push is enough": Fault(
        "wrong link",
        ((EVIDENCE, "view.reaches_back and exclusive and _may", "view.reaches_back and _may"),),
        weather={"strangers": 5},
    ),
    "E1 without a quiet period": Fault(
        "wrong link",
        (
            (
                EVIDENCE,
                "if now.evidence is Evidence.AGREEING_ECHO:",
                "if now.evidence is not None:",
            ),
        ),
        # The caller's promise was a little early; what was lost has arrived, though.
        weather={
            "exclusive": True,
            "echo": "none",
            "natural": False,
            "lag": 5.0,
            "late_old": 1,
            "undated": True,
            "fate": "lost answer",
            "crash": 0.0,
            "strangers": 0,
            "patience": 15.0,
        },
    ),
    "no late sweep": Fault(
        "silent loss",
        (
            (
                SEARCH,
                "for name in {row.company for row in d.doubts(company_id)}:",
                "for name in ():",
            ),
        ),
    ),
    "a listing in search without a budget": Fault(
        "budget",
        ((SEARCH, "while (wait := company.wait(loop_time())) > 0:", "while (wait := 0.0) > 0:"),),
        weather={"idempotent": True, "trouble": 0.9},
    ),
    # Stores
    "two rows for one reference": Fault(
        "double send",
        (
            (
                MEMORY,
                "if row.reference is not None and row.reference in",
                "if row.reference in () and row.reference in",
            ),
        ),
        weather={"trouble": 0.0},
        owners=2,
    ),
    "what is Stale is sent": Fault(
        "sent without a row",
        (
            (
                DISPATCHER,
                "            self.tasks.start(self.restart(new.id))\n"
                "            raise Moved from None",
                "            self.tasks.start(self.restart(new.id))",
            ),
        ),
        owners=2,
        histories=3000,
    ),
    "what is Fenced is sent": Fault(
        "sent without a row",
        (
            (
                DISPATCHER,
                "self.companies.let_go(self.companies.of(new.company))\n"
                "            raise Moved from None",
                "self.companies.let_go(self.companies.of(new.company))",
            ),
        ),
        owners=2,
    ),
    "no check of the token": Fault(
        "fenced",
        ((WORLD, "            server.check(companies, self, tokens)\n", ""),),
        owners=2,
        weather={"freezes": 0.5},
    ),
    "a token checked before the transaction": Fault(
        "fenced",
        (
            (WORLD, "            server.check(companies, self, tokens)\n", ""),
            (
                WORLD,
                "        return self._call(lambda: self._write(rows, add, tokens))",
                "        companies = {row.company for row in rows}\n"
                "        self._call(lambda: self.server.check(companies, self, tokens))\n"
                "        return self._call(lambda: self._write(rows, add, tokens))",
            ),
        ),
        owners=2,
        weather={"freezes": 0.5},
    ),
    "rows read before the claim": Fault(
        "no outcome",
        (
            (
                COMPANIES,
                "        rows = await store.take(company.id)\n        if rows is None:\n",
                "        rows = await store.rows(company=company.id, live=True)\n"
                "        if await store.take(company.id) is None:\n",
            ),
        ),
        owners=2,
        weather={"trip": 6.0, "freezes": 0.5, "twins": 1.0, "echo": "full"},
        histories=1200,
    ),
    "an old read is believed": Fault(
        "broke",
        ((DISPATCHER, "if held is not None and held.version > row.version:", "if not row:"),),
        owners=2,
        weather={"trip": 6.0},
        histories=1200,
    ),
}
ALWAYS = ("SENDING restarts as QUEUED", "sent without a row", "what is Fenced is sent")


def simulated(where: Path, *options: str) -> str:
    """Run histories as a program, in which a seed always means the same; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.proofs.simulator", "--jobs", "1", *options],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"package: {where}" in done.stdout, done.stderr
    return done.stdout


def copy_with(fault: Fault, where: Path) -> None:
    """Copy the package and the simulator, with the fault."""
    shutil.copytree(ROOT / "integration_sdk", where / "integration_sdk")
    for name in ("simulator.py", "simulated_world.py"):
        (where / "tests" / "proofs").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / "proofs" / name, where / "tests" / "proofs" / name)
    for name, old, new in fault.changes:
        text = (where / name).read_text()
        assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
        (where / name).write_text(text.replace(old, new))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in ALWAYS else LONG) for one in FAULTS]
)
def test_a_seeded_fault_is_found(name: str, tmp_path: Path) -> None:
    """And the same histories are clean without it."""
    fault = FAULTS[name]
    copy_with(fault, tmp_path)
    under = ("--owners", str(fault.owners), "--weather", json.dumps(fault.weather))
    sick = simulated(
        tmp_path, *under, "--stop-at", fault.violation, "--histories", str(fault.histories)
    )
    told, _, violations = sick.partition("violations: ")
    assert f": {fault.violation}" in violations, sick
    last = int(told.split(" histories of ")[0].split()[-1])
    first = max(0, last - 50)
    some = ("--first-seed", str(first), "--histories", str(last - first))
    healthy = simulated(ROOT, *under, *some)
    assert "violations: 0" in healthy, healthy
