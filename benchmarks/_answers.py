"""Asks questions; shows the answers as tables, keeps them as JSON, writes the page of figures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import _machine
from benchmarks._machine import RESULTS
from benchmarks._question import Figure, Question, Row, Rows, Verdict

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
SHOWN = 6
"""Maximum number of other contenders shown beside a figure."""


def ask(questions: Sequence[Question], *, quick: bool, results: Path = RESULTS) -> list[Verdict]:
    """Ask *questions* one after the other; return the verdicts on all their goals."""
    machine = _machine.facts()
    print("\n".join(f"{name:>10}  {fact}" for name, fact in machine.items()))
    if not _machine.quiet():
        print("     noisy  other programs are running: trust counts, not seconds")
    results.mkdir(parents=True, exist_ok=True)
    judged: list[Verdict] = []
    for question in questions:
        print(f"\n{question.name}: {question.asks}", flush=True)
        began = time.perf_counter()
        rows = question.run(quick)
        took = time.perf_counter() - began
        found = question.judge(rows, quick=quick)
        text = "\n".join(filter(None, [table(question, rows), verdicts(found)]))
        print(f"{text}\n({took:.0f} s)", flush=True)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        head = f"{question.asks}\npython -m benchmarks {question.name}, {at}\n"
        (results / f"{question.name}.txt").write_text(f"{head}\n{text}\n")
        answer = {"at": at, "quick": quick, "seconds": took, "machine": machine}
        answer |= _as_json(question, rows, found)
        (results / f"{question.name}.json").write_text(json.dumps(answer, indent=1) + "\n")
        judged += found
    return judged


def summary(judged: Sequence[Verdict]) -> str:
    """Return how many goals were met, and those that were not."""
    asked = [one for one in judged if not one.skipped]
    missed = [one for one in judged if one.is_missed]
    line = f"{len(asked) - len(missed)} of {len(asked)} goals met"
    if len(asked) < len(judged):
        line += f", {len(judged) - len(asked)} skipped: they need the full size"
    return f"{line}\n{verdicts(missed)}".rstrip()


# Tables


def table(question: Question, rows: Rows) -> str:
    """Return the rows as a table: medians, spreads of repeated measurements, and ratios."""
    names = list(dict.fromkeys(name for row in rows.rows for name in row.figures))
    ratio = [f"x {question.compare[1]}"] if question.compare else []
    lines = [["setting", "contender", *names, *ratio]]
    last = ""
    for row in rows.rows:
        shown = [_cell(row.figures.get(name)) for name in names]
        setting, last = ("" if row.setting == last else row.setting), row.setting
        lines.append([setting, row.contender, *shown, *_ratio(row, rows, question.compare)])
    notes = [f"  {row.setting}, {row.contender}: {row.note}" for row in rows.rows if row.note]
    return "\n".join([*_aligned(lines), *notes])


def verdicts(judged: Sequence[Verdict]) -> str:
    """Return one line for each goal."""
    cells = []
    for one in judged:
        goal, limit = one.goal, one.beside.get(one.goal.limit)
        beside = "" if limit is None else f" limit here {number(limit)}: {goal.limit}"
        bound = number(goal.bound)
        cells.append([one.word, goal.what, number(one.value), goal.relation, bound, beside])
    return "\n".join(_aligned(cells))


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    spread = f" ±{figure.spread * 50:.0f}%" if len(figure.values) > 1 else ""
    return number(figure.median) + spread


def number(value: float | None) -> str:
    """Return *value* with its significant digits."""
    if value is None:
        return "-"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def _ratio(row: Row, rows: Rows, compare: tuple[str, str] | None) -> list[str]:
    if compare is None:
        return []
    figure, to = compare
    try:
        one, other = (rows.median(row.setting, name, figure) for name in (row.contender, to))
        return [f"{one / other:.2f}"]
    except (LookupError, ZeroDivisionError):
        return ["-"]


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if position < 2 else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


# JSON


def _as_json(question: Question, rows: Rows, judged: Sequence[Verdict]) -> dict[str, Any]:
    """Return the answer for a JSON file; every measured value is kept."""
    return {
        "question": question.name,
        "asks": question.asks,
        "rows": [
            {
                "setting": row.setting,
                "contender": row.contender,
                "note": row.note,
                "figures": {
                    name: {"median": figure.median, "values": list(figure.values)}
                    for name, figure in row.figures.items()
                },
            }
            for row in rows.rows
        ],
        "goals": [
            {
                "what": one.goal.what,
                "relation": one.goal.relation,
                "bound": one.goal.bound,
                "value": one.value,
                "verdict": one.word,
                "limit": one.goal.limit,
                "headline": one.goal.headline,
                "beside": dict(one.beside),
            }
            for one in judged
        ],
    }


# The page of figures


def write(page: Path, results: Path, names: Sequence[str]) -> str:
    """Write a table of the stored *results* between the two comments of *page*; return a message.

    *names* are the questions, in the table's order; those without an answer are left out.
    """
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        return f"{page.name} was left alone: it has no lines {BEGIN} and {END}"
    files = [results / f"{name}.json" for name in names]
    answers = [json.loads(file.read_text()) for file in files if file.exists()]
    full = [answer for answer in answers if not answer["quick"]]
    if not full:
        return f"{page.name} was left alone: no question was asked at its full size yet"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    machine, day = full[-1]["machine"], max(answer["at"][:10] for answer in full)
    lines = [
        f"{before}{BEGIN}",
        f"`python -m benchmarks all --readme` on {day}: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['python']}.",
        "",
        "| figure | seen | goal | others in the same run |",
        "|---|---|---|---|",
        *(line for answer in full for line in _lines(answer)),
        f"{END}{after}",
    ]
    page.write_text("\n".join(lines), encoding="utf-8")
    return f"{page.name} shows the figures of {len(full)} questions"


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    for goal in answer["goals"]:
        if goal["headline"]:
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
