"""``python -m benchmarks``: list the questions, ask some or all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks._catalogue import questions
from benchmarks._question import Question
from benchmarks._runner import ask, summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Do as told; 1 where ``--check`` finds a goal missed."""
    told = _parser().parse_args(arguments)
    known = {question.name: question for question in questions()}
    if not told.names:
        print(listing(known.values()))
        return 0
    unknown = [name for name in told.names if name not in known and name != "all"]
    if unknown:
        print(f"no question is called {', '.join(unknown)}; there are: {', '.join(known)}, all")
        return 2
    names = list(known) if "all" in told.names else list(dict.fromkeys(told.names))
    judged = ask([known[name] for name in names], quick=told.quick)
    print(f"\n{summary(judged)}")
    return int(told.check and any(one.is_missed for one in judged))


def listing(known: Sequence[Question]) -> str:
    """Return the questions and their goals, as lines."""
    lines: list[str] = []
    for question in known:
        lines.append(f"{question.name:<16}{question.asks}")
        for goal in question.goals:
            lines.append(f"{'':<18}{goal.what} {goal.relation} {goal.bound:g}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a question, or all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
