"""``python -m benchmarks``: list the questions, ask some or all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import calls, polling, pull, pushing, reading, scale
from benchmarks._answers import ask, summary, write
from benchmarks._machine import RESULTS, ROOT
from benchmarks._question import Question

MODULES = (reading, calls, pushing, polling, pull, scale)
QUESTIONS = {
    one.name: one
    for module in MODULES
    for one in vars(module).values()
    if isinstance(one, Question)
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if ``--check`` finds a goal missed."""
    told = _parser().parse_args(arguments)
    if not told.names and not told.readme:
        print(listing())
        return 0
    unknown = [name for name in told.names if name not in {*QUESTIONS, "all"}]
    if unknown:
        print(f"no question is called {', '.join(unknown)}; there are: {', '.join(QUESTIONS)}, all")
        return 2
    asked = [one for one in QUESTIONS.values() if _is_asked(one, told.names)]
    judged = ask(asked, quick=told.quick) if asked else []
    if asked:
        print(f"\n{summary(judged)}")
    if told.readme:
        page = ROOT / "integration_sdk" / "docs" / "figures.md"
        print(write(page, RESULTS, sorted(QUESTIONS)))
    return int(told.check and any(one.is_missed for one in judged))


def _is_asked(question: Question, names: Sequence[str]) -> bool:
    return question.name in names or ("all" in names and not question.on_request)


def listing() -> str:
    """Return the questions and their goals, as lines."""
    lines: list[str] = []
    for question in QUESTIONS.values():
        aside = " (by name only)" if question.on_request else ""
        lines.append(f"{question.name:<16}{question.asks}{aside}")
        lines += [f"{'':<18}{goal.what} {goal.relation} {goal.bound:g}" for goal in question.goals]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a question, or all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument(
        "--readme", action="store_true", help="write what is known into the page of figures"
    )
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
