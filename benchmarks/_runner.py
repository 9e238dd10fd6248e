"""Asks questions, shows the answers and keeps them under ``results``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import _machine, _plots
from benchmarks._peers import RESULTS
from benchmarks._question import Question, Rows, Verdict
from benchmarks._table import as_json, table, verdicts


def ask(questions: Sequence[Question], *, quick: bool, results: Path = RESULTS) -> list[Verdict]:
    """Ask *questions* one after the other; return the verdicts on all their goals."""
    machine = _machine.facts()
    print(_machine.describe(machine))
    if not _machine.quiet():
        print("     noisy  other programs are running: trust counts, not seconds")
    judged: list[Verdict] = []
    for question in questions:
        print(f"\n{question.name}: {question.asks}", flush=True)
        began = time.perf_counter()
        rows = question.run(quick)
        took = time.perf_counter() - began
        found = question.judge(rows, quick=quick)
        text = _text(question, rows, found)
        print(f"{text}\n({took:.0f} s)", flush=True)
        answer = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": quick,
            "seconds": took,
            "machine": machine,
            **as_json(question, rows, found),
        }
        _keep(results, question, rows, text, answer)
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


def _text(question: Question, rows: Rows, found: Sequence[Verdict]) -> str:
    return "\n".join(filter(None, [table(question, rows), verdicts(found)]))


def _keep(
    results: Path, question: Question, rows: Rows, text: str, answer: dict[str, object]
) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{question.name}.json").write_text(json.dumps(answer, indent=1) + "\n")
    head = f"{question.asks}\npython -m benchmarks {question.name}, {answer['at']}\n"
    (results / f"{question.name}.txt").write_text(f"{head}\n{text}\n")
    if question.plot and _plots.can_draw():
        for file in question.plot(rows, results):
            print(f"plot: {file.name}")
    elif question.plot:
        print("no plot: matplotlib is not installed (extra `bench`)")
