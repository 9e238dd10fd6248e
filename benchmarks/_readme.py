"""Writes README's table of figures from the stored answers.

The table replaces the text between two comments.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._table import number

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
SHOWN = 6
"""Maximum number of other contenders shown beside a figure."""
PLOT = "prefetch.png"


def write(readme: Path, results: Path, names: Sequence[str]) -> str:
    """Write the table into *readme*, and the plot beside the benchmarks; return a message.

    Args:
        readme: A file with the two comments, each on a line of its own.
        results: Where the answers are stored.
        names: The questions, in the table's order; those without an answer are left out.
    """
    text = readme.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        return f"{readme.name} was left alone: it has no lines {BEGIN} and {END}"
    answers = [_read(results / f"{name}.json") for name in names]
    full = [answer for answer in answers if answer and not answer["quick"]]
    if not full:
        return f"{readme.name} was left alone: no question was asked at its full size yet"
    if (results / PLOT).exists():
        shutil.copy(results / PLOT, readme.parent / "benchmarks" / PLOT)
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{table(full)}\n{END}{after}", encoding="utf-8")
    return f"{readme.name} shows the figures of {len(full)} questions"


def _read(file: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return answer


def table(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return a row of Markdown for each headline of *answers*."""
    machine, day = answers[-1]["machine"], max(answer["at"][:10] for answer in answers)
    lines = [
        f"`python -m benchmarks all --readme` on {day}: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['python']}.",
        "",
        "| figure | seen | goal | others in the same run |",
        "|---|---|---|---|",
        *(line for answer in answers for line in _lines(answer)),
    ]
    return "\n".join(lines)


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    for goal in answer["goals"]:
        if not goal.get("headline"):  # an answer may be older than headlines
            continue
        bound = f"{goal['relation']} {number(goal['bound'])}"
        cells = [
            f"{goal['what']} (`{answer['question']}`)",
            number(goal["value"]),
            bound if goal["verdict"] == "met" else f"{bound}, missed",
            _others(goal),
        ]
        yield f"| {' | '.join(cells)} |"


def _others(goal: Mapping[str, Any]) -> str:
    """Return the figures of others: the limit first, then the nearest ones."""
    others = sorted(
        goal["beside"].items(), key=lambda one: one[1], reverse=goal["relation"] == ">="
    )
    others.sort(key=lambda one: one[0] != goal["limit"])
    return ", ".join(f"{name} {number(value)}" for name, value in others[:SHOWN])
