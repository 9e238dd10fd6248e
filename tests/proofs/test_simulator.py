"""No history breaks a promise of the push room, and each seeded fault is found.

The referee is refereed: a fault is sown into a copy of the package. Some history must show the
violation named. `pytest -m long tests/proofs/test_simulator.py` runs all, and as many histories as
the argument rests on (``SIMULATED_HISTORIES=60000``; a third of it with two workers).
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

from tests.support.fault import ROOT, Fault

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "3000"))
LONG = pytest.mark.long
BACK = {"back": 0.3, "crash": 0.0, "freezes": 0.0, "cuts": 0.0}


def simulated(where: Path, *options: str) -> str:
    """Run histories as a program, in which a seed always means the same; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.proofs.simulator", *options],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"package: {where}" in done.stdout, done.stderr
    return done.stdout


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("workers", "histories", "weather"),
    [
        (1, 30, {}),
        (2, 15, {}),
        (2, 8, BACK),
        pytest.param(1, HISTORIES, {}, marks=LONG),
        pytest.param(2, HISTORIES // 3, {}, marks=LONG),
        # Rows left out, twice or in disorder leave pushes in doubt: none is linked to another's.
        pytest.param(1, HISTORIES // 5, {"omits": 0.1}, marks=LONG),
        pytest.param(1, HISTORIES // 5, {"omits": 0.1, "exclusive": True}, marks=LONG),
        pytest.param(1, HISTORIES // 5, {"repeats": 0.05}, marks=LONG),
        pytest.param(1, HISTORIES // 5, {"shuffles": 0.3}, marks=LONG),
        pytest.param(1, HISTORIES // 5, {"crowd": 3, "steps": False}, marks=LONG),
    ],
)
def test_no_history_breaks_a_promise(workers: int, histories: int, weather: dict[str, Any]) -> None:
    """Crashes, strangers, troubles and lists of every kind, with a journal and without."""
    told = simulated(
        *(ROOT, "--histories", str(histories)),
        *("--workers", str(workers), "--weather", json.dumps(weather)),
    )
    assert "violations: 0" in told, told


# Seeded faults


@frozen
class Sown:
    """A fault in a function of a file, and the violation that some history must show."""

    violation: str
    place: tuple[str, str]
    old: str
    new: str
    workers: int = 1
    weather: dict[str, Any] = Factory(dict)
    histories: int = 600

    @property
    def fault(self) -> Fault:
        return Fault(self.place[0], self.old, self.new, "simulator", self.place[1])


CARRIER, HOLDER, SEARCH = "_push/carrier.py", "_push/holder.py", "_push/search.py"
EVIDENCE, TABLE, JOURNAL = "_push/evidence.py", "_push/table.py", "_store/journal.py"
RUN = "_push/run.py"

FAULTS: dict[str, Sown] = {
    "SENDING restarts as QUEUED": Sown(
        "double send",
        (HOLDER, "Holder._lose_unfinished"),
        'await self.step(live, Event.LOST, error="the process ended while it was being sent")',
        "await self.step(live, Event.LATER)",
        weather={"crash": 0.1},
    ),
    "a proxy's refusal is believed": Sown(
        "told that it does not exist",
        (TABLE, "_meaning"),
        "is_error_body(result.body)",
        "True",
    ),
    "a key that was listed before is believed": Sown(
        "wrong link",
        (CARRIER, "Carriers._is_known"),
        "listed or folded(key) in row.earlier_keys or self.holder.owns(key)",
        "False",
    ),
    "a write that was refused is taken for written": Sown(
        "sent without a row",
        (HOLDER, "Holder.step"),
        "if found.version != row.version: self.moved(live, found)",
        "if found.version != row.version: self.moved(live, found); return True",
        workers=2,
        weather={"freezes": 0.5},
    ),
    "a decided row is no rival": Sown(
        "wrong link",
        (SEARCH, "Search._look"),
        "rivals = await holder.journal.unexplained(company.id)",
        "rivals = [one for one in await holder.journal.unexplained(company.id) if not one.is_done]",
        weather={"twins": 1.0, "trouble": 0.9, "lag": 40.0},
        histories=3000,
    ),
    "an empty mark": Sown(
        "wrong link",
        (CARRIER, "Carriers._carry_one"),
        "company.mark = listing.mark() if listing else None",
        "company.mark = listing and structs.replace("
        "listing.mark(), keys=(), latest=None, taken_at=0)",
        weather={"exclusive": True},
        histories=1200,
    ),
    "one new push is enough": Sown(
        "wrong link",
        (EVIDENCE, "Judging.judge"),
        "past and timed and self.exclusive and only and old.isdisjoint(fresh)",
        "past and timed and only and old.isdisjoint(fresh)",
        weather={"strangers": 5, "exclusive": False},
    ),
    "no late search": Sown(
        "silent loss",
        (SEARCH, "Search._look"),
        "lives = dict(company.doubtful)",
        "lives = {name: live for name, live in company.doubtful.items()"
        " if live.row.state is State.LOST}",
    ),
    "a run that is left keeps a place": Sown(
        "waits for ever", (RUN, "Run._feed"), "self.places.release()", "None"
    ),
    "a worker that waits for its last answers is dead": Sown(
        "taken from the living",
        (SEARCH, "Workers._keep"),
        "True",
        "not holder.closing",
        workers=2,
        weather={"slow": 45.0, "freezes": 0, "cuts": 0, "trip": 0.6},
        histories=400,
    ),
    "a store that went back is not noticed": Sown(
        "",
        (JOURNAL, "Journal.reconnected"),
        "self._database.connections != self._connections",
        "False",
        workers=2,
        weather=BACK,
    ),
}
ALWAYS = "SENDING restarts as QUEUED"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("7027766", id="two pushes of one reference take its row up once"),
        pytest.param("80003645", id="two pushes of one corrected record take its row up once"),
        pytest.param("90003592", id="a decision is not about a record that was corrected since"),
        pytest.param("120000040", id="a decision is carried out by who holds the row by then"),
        pytest.param("20001589", id="a row that comes back while it is searched for is told once"),
    ],
)
def test_a_history_that_broke_a_promise_once(seed: str) -> None:
    weather = ("--weather", '{"slow": 0}')  # younger than these seeds
    told = simulated(ROOT, "--first-seed", seed, "--histories", "1", "--workers", "2", *weather)
    assert "violations: 0" in told, told


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_can_be_sown(name: str) -> None:
    """Its function has the expression once, also in the plain run."""
    fault = FAULTS[name].fault
    assert fault.sown((ROOT / "integration_sdk" / fault.file).read_text())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == ALWAYS else LONG) for one in FAULTS]
)
def test_a_seeded_fault_is_found(name: str, tmp_path: Path) -> None:
    """And the same histories are clean without it."""
    sown = FAULTS[name]
    shutil.copytree(ROOT / "integration_sdk", tmp_path / "integration_sdk")
    (tmp_path / "tests" / "proofs").mkdir(parents=True)
    for file in ("simulator.py", "simulated_world.py"):
        shutil.copy(ROOT / "tests" / "proofs" / file, tmp_path / "tests" / "proofs" / file)
    sown.fault.sow(tmp_path)
    under = ("--workers", str(sown.workers), "--weather", json.dumps(sown.weather))
    stop = ("--stop-at", sown.violation, "--histories", str(sown.histories))
    sick = simulated(tmp_path, *under, *stop)
    told, _, violations = sick.partition("violations: ")
    assert f": {sown.violation}" in violations, sick
    last = int(told.split(" histories of ")[0].split()[-1])
    first = max(0, last - 20)
    some = ("--first-seed", str(first), "--histories", str(last - first))
    healthy = simulated(ROOT, *under, *some)
    assert "violations: 0" in healthy, healthy
