"""What a benchmark is: a question, the rows it was answered with, and goals to judge them by.

A module plugs in by one value, `Question`. Its ``run`` gives rows, one for each contender in
each setting; a goal picks a number out of them and holds it to a bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import Factory, evolve, field, frozen


class NotMeasuredError(LookupError):
    """A goal asks for a figure that no row has."""


@frozen
class Figure:
    """A figure, measured some times over."""

    values: tuple[float, ...] = field(converter=tuple[float, ...])

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """From the least to the greatest, as a part of the median."""
        middle = abs(self.median)
        return (max(self.values) - min(self.values)) / middle if middle else 0.0


@frozen
class Row:
    """How one contender did in one setting.

    Attributes:
        setting: For example ``5,000 a page``.
        contender: Who.
        figures: By name with unit, for example ``CPU us/item``.
        note: What else is to be known; why there are no figures.
        series: Points (x, y) by name, for plots; not part of the table.
    """

    setting: str
    contender: str
    figures: Mapping[str, Figure] = Factory(dict)
    note: str = ""
    series: Mapping[str, Sequence[tuple[float, float]]] = Factory(dict)


def row(setting: str, contender: str, note: str = "", **figures: float) -> Row:
    """A row of figures measured once; underscores in their names stand for spaces."""
    named = {name.replace("_", " "): Figure((value,)) for name, value in figures.items()}
    return Row(setting, contender, named, note)


@frozen
class Rows:
    """All rows of an answer."""

    rows: tuple[Row, ...] = field(converter=tuple[Row, ...])

    def median(self, setting: str, contender: str, figure: str) -> float:
        """Return one figure.

        Raises:
            NotMeasuredError: There is none.
        """
        for one in self.rows:
            if (one.setting, one.contender) == (setting, contender) and figure in one.figures:
                return one.figures[figure].median
        raise NotMeasuredError(f"no {figure!r} of {contender!r} at {setting!r}")

    def ratio(self, setting: str, contender: str, figure: str, to: str) -> float:
        """Return how many times the figure of *to* that of *contender* is."""
        return self.median(setting, contender, figure) / self.median(setting, to, figure)

    def settings(self) -> list[str]:
        """Return the settings in their order."""
        return list(dict.fromkeys(one.setting for one in self.rows))


@frozen
class Pick:
    """One figure of one row; as a ratio, where *over* names another contender."""

    setting: str
    contender: str
    figure: str
    over: str = ""

    def __call__(self, rows: Rows) -> float:
        """Return it.

        Raises:
            NotMeasuredError: There is none.
        """
        if self.over:
            return rows.ratio(self.setting, self.contender, self.figure, self.over)
        return rows.median(self.setting, self.contender, self.figure)

    def of_others(self, rows: Rows) -> dict[str, float]:
        """Return the same of everybody else in the same setting."""
        return {
            row.contender: evolve(self, contender=row.contender)(rows)
            for row in rows.rows
            if row.setting == self.setting and self.figure in row.figures
            if row.contender not in (self.contender, self.over)
        }


@frozen
class Goal:
    """A figure to reach.

    Attributes:
        what: The figure in words.
        relation: How it must stand to *bound*.
        bound: In the unit that *what* names.
        measured: Picks the figure out of the rows.
        needs_full: Whether it says nothing at the smaller sizes of ``--quick``.
        limit: The contender who does only what nobody can leave out: the machine's limit.
        headline: Whether README shows it.
    """

    what: str
    relation: Literal["<=", ">="]
    bound: float
    measured: Callable[[Rows], float]
    needs_full: bool = False
    limit: str = ""
    headline: bool = False


@frozen
class Verdict:
    """What became of a goal; *value* is None where it was not measured.

    Attributes:
        beside: The same figure of others in the same run, by name.
    """

    goal: Goal
    value: float | None
    skipped: bool = False
    beside: Mapping[str, float] = Factory(dict)

    @property
    def limit(self) -> float | None:
        """What the machine allowed in the same run, where a contender showed it."""
        return self.beside.get(self.goal.limit)

    @property
    def is_met(self) -> bool:
        """Whether it was measured, and within the bound."""
        if self.value is None:
            return False
        if self.goal.relation == "<=":
            return self.value <= self.goal.bound
        return self.value >= self.goal.bound

    @property
    def is_missed(self) -> bool:
        """Whether it should have been met and was not."""
        return not self.skipped and not self.is_met

    @property
    def word(self) -> str:
        """One word for it."""
        if self.skipped:
            return "skipped"
        return "met" if self.is_met else "MISSED" if self.value is not None else "NOT MEASURED"


@frozen
class Question:
    """Something worth knowing.

    Attributes:
        name: What the command line calls it.
        asks: The question, in words.
        run: Answers it; told whether small sizes will do.
        goals: What the answer is held to.
        compare: (figure, contender): every row gets its ratio to that contender's figure.
        plot: Draws the rows into a folder; returns the files.
        on_request: Whether it is asked by name only, since it takes long.
    """

    name: str
    asks: str
    run: Callable[[bool], Rows]
    goals: Sequence[Goal] = ()
    compare: tuple[str, str] | None = None
    plot: Callable[[Rows, Path], Iterable[Path]] | None = None
    on_request: bool = False

    def judge(self, rows: Rows, *, quick: bool) -> list[Verdict]:
        """Compare *rows* with the goals."""
        return [_judge(goal, rows, quick=quick) for goal in self.goals]


def _judge(goal: Goal, rows: Rows, *, quick: bool) -> Verdict:
    if quick and goal.needs_full:
        return Verdict(goal, None, skipped=True)
    try:
        value = goal.measured(rows)
    except NotMeasuredError:
        return Verdict(goal, None)
    beside = goal.measured.of_others(rows) if isinstance(goal.measured, Pick) else {}
    return Verdict(goal, value, beside=beside)
