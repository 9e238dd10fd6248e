"""`crashtest` finds what programs double, lose, mislink and miss, and passes those that do not."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.cli import main
from tests.support.cli_support import Done, ended, started, until
from tests.testing import crash_programs

ROOT = Path(__file__).parents[2]
FILES = ("--expect", "out.ndjson", "--type", "invoices", "--companies", "1", "--invoices", "100")
PULLED = ("--expect", "out", "--type", "invoices", "--changes", "3")
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


class Crash:
    """Tests a program in a folder that is not its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._script = folder / "program.py"
        self._capsys = capsys

    def __call__(self, program: str, *options: str, kills: int = 8) -> Done:
        self._script.write_text(program)
        some = ("--kills", str(kills), "--freezes", "1", *options)
        return self.main(*some, "--", sys.executable, str(self._script))

    def main(self, *arguments: str) -> Done:
        code = main(["crashtest", *arguments])
        said = self._capsys.readouterr()
        return Done(code, said.out, said.err)

    def found(self, *arguments: str, kills: int = 8) -> dict[str, Any]:
        return facts(self(*arguments, "--json", kills=kills))


@pytest.fixture
def crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Crash:
    return Crash(tmp_path, capsys)


def facts(done: Done) -> dict[str, Any]:
    assert done.code in {0, 1}, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("program", "options", "kind"),
    [
        ("BACKOFF_AROUND_POST", (), "doubled"),
        ("CURSOR_BEFORE_DATA", FILES, "missing"),
        ("APPENDS_AND_RESTARTS", FILES, "doubled"),
    ],
)
def test_a_naive_program_fails_and_the_report_says_where(
    program: str, options: tuple[str, ...], kind: str, crash: Crash
) -> None:
    """What a retry loop doubles, and what a cursor or an append loses or doubles over a kill."""
    done = crash(getattr(crash_programs, program), *options, "--json")

    found = facts(done)
    assert done.code == 1
    assert found["found"][kind] > 0
    assert 0 < found["foundAfter"][kind] <= found["kills"] + found["freezes"]
    first = next(one for one in found["findings"] if one["kind"] == kind)
    assert any(re.match(r"life \d+, request \d+: (POST|GET) ", line) for line in first["where"])


def test_a_program_that_starts_over_safely_passes(crash: Crash) -> None:
    """Whole files that are exchanged hold each record once, and what has changed since."""
    program = crash_programs.EXCHANGES_THE_FILE

    found = crash.found(program, *FILES, "--changes", "3")

    assert found["passed"]
    assert found["findings"] == []
    assert found["kills"] == 8


def test_what_changes_has_to_be_read_again(crash: Crash) -> None:
    """A program that leaves its file as it is has a stale one, kills or not."""
    found = crash.found(crash_programs.READS_ONCE, *FILES, "--changes", "3")

    assert set(found["found"]) == {"stale"}


def test_a_link_to_another_record(crash: Crash, tmp_path: Path) -> None:
    """Each round loses its second customer to a 503, and links an invoice to the first."""
    faults = tmp_path / "faults.json"
    away = {"fault": "status", "code": 503, "route": "POST /push/customers", "skip": 1, "times": 1}
    faults.write_text(json.dumps([away]))

    found = crash.found(crash_programs.LINKS_TO_THE_LAST, "--faults", str(faults), kills=0)

    assert found["found"] == {"lost": found["rounds"], "mislinked": found["rounds"]}


def test_a_link_to_the_same_record_by_another_id(crash: Crash) -> None:
    """Ids differ from round to round, and what they stand for does not."""
    found = crash.found(crash_programs.LINKS_RIGHTLY)

    assert found["findings"] == []
    assert found["rounds"] > 0


def test_what_a_journal_names_in_doubt_is_no_failure(crash: Crash, tmp_path: Path) -> None:
    """A push that was cut off before it arrived cannot be settled, and the journal says so."""
    faults = tmp_path / "faults.json"
    cut = {"fault": "drop_connection", "route": "POST /push/", "times": 1}
    faults.write_text(json.dumps([cut]))

    found = crash.found(crash_programs.IN_DOUBT, "--faults", str(faults), kills=1)

    assert found["passed"]
    assert found["inDoubt"] >= 1


def readme() -> list[str]:
    return _BLOCK.findall((ROOT / "README.md").read_text())


@pytest.mark.parametrize(  # pull is killed at each step in test_pull_crashes
    "number", [1, pytest.param(2, marks=pytest.mark.long)], ids=["push", "pull"]
)
def test_the_programs_of_readme_pass(number: int, crash: Crash) -> None:
    """Pushing with a journal and pulling to files; a lost push is searched for a shorter time."""
    program = readme()[number].replace('"pushes.db"', '"pushes.db", patience=0.5')

    found = crash.found(program, *PULLED * (number == 2), kills=2)

    assert found["findings"] == []
    assert found["kills"] == 2


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [1, 2], ids=["push", "pull"])
def test_the_programs_of_readme_pass_fifty_kills(number: int, crash: Crash) -> None:
    """As they stand."""
    found = crash.found(readme()[number], *PULLED * (number == 2), kills=50)

    assert found["findings"] == []
    assert found["kills"] == 50


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give the command that is to be tested behind --"),
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "true"], "without a request to the sandbox: it has to take its address and key"),
        (["--", "false"], "undisturbed, the program does not end well: exit code 1"),
        (["--patience", "0.2", "--", "sleep", "9"], "it still runs after 0.2 seconds"),
        (["--kills", "-1", "--", "true"], "kills and freezes are counts"),
        (["--kills", "0", "--freezes", "0", "--", "true"], "and one is above 0"),
        (["--workers", "0", "--", "true"], "workers is at least 1"),
        (["--changes", "1", "--", "true"], "changes are to be found in files: name some"),
        (["--expect", "out", "--", "true"], "each --expect PATH needs a --type"),
        (["--expect", "out", "--type", "cats", "--", "true"], "there is no data type cats"),
        (["--copy", "nowhere", "--", "true"], "cannot copy nowhere: No such file"),
        (["--faults", "nowhere", "--", "true"], "cannot read nowhere: No such file"),
        (["--faults", "README.md", "--", "true"], "--faults: faults are a JSON list such as"),
        (["--report", "nowhere/r.html", "--", "true"], "cannot write nowhere/r.html: No such file"),
        (["--report", "tests", "--", "true"], "cannot write tests: Is a directory"),
        (["--keep", "tests", "--", "true"], "cannot make the folder tests: File exists"),
        (["--companies", "-1", "--", "true"], "companies cannot be -1"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(
    arguments: list[str], says: str, crash: Crash
) -> None:
    """With exit code 2, before anything is killed."""
    done = crash.main(*arguments)

    assert done.code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


class _Page(HTMLParser):
    """Counts the elements of a page, and notes what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "style"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_page_with_a_timeline_and_escapes_what_it_shows(
    crash: Crash, tmp_path: Path
) -> None:
    """A supplier's name is no markup, and the page loads nothing."""
    page, program = tmp_path / "report.html", crash_programs.BACKOFF_AROUND_POST
    hostile = program.replace("supplier-{number}", "<script>{number}</script>")

    done = crash(hostile, "--json", "--report", str(page))

    seen = _Page()
    seen.feed(page.read_text())
    rounds = facts(done)["rounds"]
    assert seen.tags.count("svg") == rounds + 1
    assert {"rect", "title", "table", "pre"} <= set(seen.tags)
    assert "script" not in seen.tags
    assert "<script>" in seen.text
    assert seen.loads == []


def test_the_table_shows_kills_verdict_and_places(crash: Crash) -> None:
    """For people; the same facts as --json."""
    done = crash(crash_programs.APPENDS_AND_RESTARTS, *FILES)

    assert done.code == 1
    assert re.search(r"kills +8\n", done.stdout)
    assert re.search(r"verdict +FAILED\n", done.stdout)
    assert re.search(r"life \d+ was killed", done.stdout)


def test_nothing_is_left_unless_it_is_to_be_kept(
    crash: Crash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a failed run nor by a program that cannot be tested; --keep has all rounds."""
    there, kept = tmp_path / "tmp", tmp_path / "kept"
    there.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(there))

    crash(crash_programs.READS_ONCE, *FILES, "--changes", "3", kills=1)
    crash.main("--", "false")
    assert list(there.iterdir()) == []

    done = crash(crash_programs.READS_ONCE, *FILES, "--keep", str(kept), kills=1)
    assert (kept / "round-0" / "out.ndjson").is_file()
    assert f"what the rounds left is in {kept}" in done.stderr


async def test_ctrl_c_leaves_no_program_behind(tmp_path: Path) -> None:
    """The program is in a process group of its own, and hears no Ctrl-C of the terminal."""
    script, told = tmp_path / "program.py", tmp_path / "pid"
    script.write_text(crash_programs.WAITS)
    command = ("crashtest", "--", sys.executable, str(script), str(told))
    async with started(*command) as process:
        await until(lambda: told.exists() and bool(told.read_text()))
        process.send_signal(signal.SIGINT)
        done = await ended(process)

    assert done.code == 130
    await until(lambda: is_gone(int(told.read_text())))


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False
