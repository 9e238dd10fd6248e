"""Crash tests find what programs double, lose and miss, and pass those that do not."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from pyarrow import Table, parquet

from integration_sdk.testing import CrashTest
from tests.support.cli_support import Done, ended, here, started
from tests.support.loops import until
from tests.testing import crash_programs

ROOT = Path(__file__).parents[2]
SANDBOX = {"companies": 1, "invoices": 100}
KILLS = 4
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def command(folder: Path, program: str) -> list[str]:
    script = folder / "program.py"
    script.write_text(program)
    return [sys.executable, str(script)]


async def crashed(folder: Path, program: str, *options: object) -> Done:
    some = ("--kills", KILLS, "--freezes", 1, *options, "--")
    return await here("crashtest", *some, *command(folder, program))


PROGRAMS = {
    "BACKOFF_AROUND_POST": ((), {"doubled"}),
    "CURSOR_BEFORE_DATA": (("--expect", "out.ndjson"), {"missing"}),
    "EXCHANGES_THE_FILE": (("--expect", "out.ndjson"), set[str]()),
    "NEVER_TWICE_ALIKE": (("--identity", "supplierName"), set[str]()),
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_programs_that_fail_are_told_from_those_that_do_not(
    program: str, tmp_path: Path
) -> None:
    """What a retry loop doubles, and what a cursor loses over a kill."""
    options, kinds = PROGRAMS[program]

    done = await crashed(tmp_path, getattr(crash_programs, program), *options, "--json")

    (found,) = done.lines
    assert (found["killed"], found["frozen"]) == (KILLS, 1)
    assert found["requests"] > 0
    assert found["started"] >= found["rounds"] + found["killed"]
    assert {one["kind"] for one in found["findings"]} - {"stuck"} == kinds
    assert (done.code, found["passed"]) == (bool(found["findings"]), not found["findings"])
    for one in found["findings"]:
        assert one["round"] > 0
        assert all(re.match(r"life \d+ was (killed|frozen) ", line) for line in one["where"])


async def test_what_a_journal_names_in_doubt_is_no_failure(tmp_path: Path) -> None:
    """A push that was cut off before it arrived cannot be settled, and the journal says so."""
    program = command(tmp_path, crash_programs.IN_DOUBT)
    test = CrashTest(program, kills=3, freezes=0, sandbox=SANDBOX)

    report = await test.run(tmp_path)

    assert report.passed, report
    assert report.in_doubt >= 1


@pytest.mark.parametrize(
    ("number", "kills"),
    [(2, 1), *(pytest.param(number, 50, marks=pytest.mark.long) for number in (1, 2))],
    ids=["pull", "pushes", "pulls"],
)
async def test_the_programs_of_readme_pass(number: int, kills: int, tmp_path: Path) -> None:
    """Pushing with a journal and pulling to files; a lost push is searched for a shorter time."""
    blocks = _BLOCK.findall((ROOT / "README.md").read_text())
    program = command(tmp_path, blocks[number].replace('"pushes.db"', '"pushes.db", patience=0.5'))
    files = ("out",) * (number == 2)
    test = CrashTest(program, kills=kills, freezes=kills // 10, files=files, sandbox=SANDBOX)

    report = await test.run(tmp_path)

    assert report.passed, report
    assert report.count("killed") == kills


async def test_files_of_each_format_are_read(tmp_path: Path) -> None:
    """And a file that cannot be read is said; --keep has what was written and what was said."""
    kept, program = tmp_path / "kept", crash_programs.EXCHANGES_THE_FILE
    parquet.write_table(Table.from_pylist([{"id": "1"}]), tmp_path / "made.parquet")
    program += f"""
import shutil
shutil.copy({str(tmp_path / "made.parquet")!r}, "out.parquet")
print("done")
"""
    names = ("out.ndjson", "out.parquet", "none.ndjson")
    options = ["--kills", 1, "--freezes", 0, "--json", "--keep", kept]
    options += [word for name in names for word in ("--expect", name)]

    done = await here("crashtest", *options, "--", *command(tmp_path, program))

    assert {one["what"] for one in done.lines[0]["findings"]} == {
        "none.ndjson cannot be read: No such file or directory"
    }
    assert json.loads((kept / "round-0/out.ndjson").read_text().splitlines()[0])["id"]
    assert (kept / "round-1.out").read_text().endswith("done\n")


async def test_the_table_shows_counts_and_places(tmp_path: Path) -> None:
    """For people; what an append doubles over a kill, and the other facts of --json."""
    program = crash_programs.APPENDS_AND_RESTARTS

    done = await crashed(tmp_path, program, "--expect", "out.ndjson", "--quiet")

    assert (done.code, done.stderr) == (1, "")
    assert re.search(rf"killed +{KILLS}\n", done.stdout)
    assert "doubled" in done.stdout
    assert re.search(r"passed +False\n", done.stdout)
    assert re.search(r"\n  life \d+ was killed", done.stdout)


async def test_ctrl_c_leaves_no_program_behind(tmp_path: Path) -> None:
    """The program is in a process group of its own, which no Ctrl-C of the terminal reaches."""
    script, told = tmp_path / "program.py", tmp_path / "pid"
    script.write_text(crash_programs.WAITS)
    words = ("crashtest", "--", sys.executable, str(script), str(told))
    async with started(*words) as process:
        await until(lambda: told.exists() and bool(told.read_text()))
        process.send_signal(signal.SIGINT)
        done = await ended(process)

    assert (done.code, done.stderr) == (130, "integration-sdk: interrupted.\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


async def test_a_program_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """After its patience, and nothing of it is left running."""
    test = CrashTest(["sleep", "9"], patience=0.2)

    with pytest.raises(ValueError, match=r"does not end well: it still runs after 0\.2 seconds"):
        await test.run(tmp_path)
