"""The benchmarks' own machinery: questions, answers, and runs in miniature. Nothing is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import _answers, pushing, scale
from benchmarks._answers import ask, summary
from benchmarks._question import Figure, Goal, Pick, Question, Row, Rows
from integration_sdk.testing import run_virtual


def test_every_question_says_what_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a name for the command line, where a wrong one shows them, and sound goals."""
    named = {"streaming", "pushing", "journal_cost", "import_time", "scale_pushes"}
    assert named <= set(command.QUESTIONS)
    for name, one in command.QUESTIONS.items():
        assert name == one.name
        assert name.isidentifier()
        assert one.asks.rstrip()[-1] in "?."
        assert len({held.what for held in one.goals}) == len(one.goals)
    assert command.main(["streming"]) == 2
    said = capsys.readouterr().out
    assert all(name in said for name in command.QUESTIONS)


def test_an_answer_is_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, as JSON with every measured value, and as a line of README for a headline."""
    ours = Row("1,000 a page", "ours", {"us": Figure((4.0, 5.0, 3.0))})
    found = Rows([ours, Row("1,000 a page", "theirs", {"us": Figure((8.0,))})])
    pick = Pick("1,000 a page", "ours", "us")
    missed = Goal("us an item", "<=", 3.0, pick, limit="theirs", headline=True)
    met = Goal("us of an odd item", ">=", 4.0, pick)
    asked = Question("cost", "What?", lambda quick: found, (missed, met), ("us", "theirs"))
    verdicts = ask([asked], quick=False, results=tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(f"Before\n{_answers.BEGIN}\nold\n{_answers.END}\nafter\n")

    _answers.write(readme, tmp_path, ["never_asked", "cost"])

    kept = json.loads((tmp_path / "cost.json").read_text())
    assert kept["rows"][0]["figures"]["us"] == {"median": 4.0, "values": [4.0, 5.0, 3.0]}
    assert [goal["verdict"] for goal in kept["goals"]] == ["MISSED", "met"]
    assert kept["machine"]["python"] in capsys.readouterr().out
    assert "What?" in (tmp_path / "cost.txt").read_text()
    assert summary(verdicts).startswith("1 of 2 goals met\nMISSED")
    before, *_, line, end, after = readme.read_text().splitlines()
    assert line == "| us an item (`cost`) | 4 | <= 3, missed | theirs 8 |"
    assert (before, end, after) == ("Before", _answers.END, "after")


def test_a_small_journal_question() -> None:
    """The journal's question gives a row for each way of writing, all of them measured."""
    found = pushing.compare_journals(pushes=10, rounds=1)

    assert len(found.rows) == 6
    assert all(row.figures["ms/push"].median > 0 for row in found.rows)


def test_small_simulations() -> None:
    """Every record is read, with a request a page, every push settles, and every request counts."""
    for pattern in scale.PATTERNS:
        row = scale.simulate(scale.Plan(companies=2, each=10), pattern)
        assert row.figures["settled"].median == 20
        assert row.figures["requests/push"].median >= 1

    row = run_virtual(scale.read_all(lists=3, workers=2))
    assert row.figures["items"].median == 3 * scale.PAGES * scale.PAGE_SIZE
    assert row.figures["requests"].median == 3 * scale.PAGES

    row = run_virtual(scale.flow(500))
    assert row.figures["settled"].median == 500
    assert row.figures["MiB grown"].median >= 0
