"""Contenders take turns, so that a temporary slowdown of the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from benchmarks._question import Figure, Row

Turn = Callable[[], Mapping[str, float]]
"""Runs a contender once and returns its figures."""


class ContenderFailedError(RuntimeError):
    """A contender could not be installed, or failed; the message is shown in the table."""


@define
class _Score:
    figures: dict[str, list[float]] = field(factory=dict)
    failure: str = ""

    def take(self, turn: Turn) -> None:
        if self.failure:
            return
        try:
            measured = turn()
        except ContenderFailedError as failure:
            self.failure = f"did not run: {failure}"
        else:
            for name, value in measured.items():
                self.figures.setdefault(name, []).append(value)

    def row(self, setting: str, contender: str) -> Row:
        if self.failure:
            return Row(setting, contender, {}, self.failure)
        figures = {name: Figure(values) for name, values in self.figures.items()}
        return Row(setting, contender, figures)


def interleaved(setting: str, turns: Mapping[str, Turn], *, rounds: int) -> list[Row]:
    """Let contenders take their *turns*, and return a row for each, by name.

    Each round begins with another contender. One that fails gets no more turns.
    """
    order = list(turns)
    scores = {name: _Score() for name in order}
    for number in range(rounds):
        first = number % len(order)
        for name in order[first:] + order[:first]:
            scores[name].take(turns[name])
    return [score.row(setting, name) for name, score in scores.items()]
