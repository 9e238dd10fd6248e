"""The parts of a benchmark: a question, rows that answer it, and goals that judge them.

Each `Question` has a ``run`` that returns rows, one for each contender in each setting. A goal
picks a number from the rows and compares it with a bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from attrs import Factory, evolve, field, frozen


class NotMeasuredError(LookupError):
    """A goal needs a figure that no row has."""


@frozen
class Figure:
    """A figure that was measured once or several times."""

    values: tuple[float, ...] = field(converter=tuple[float, ...])

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The range of the measured values, divided by the median."""
        middle = abs(self.median)
        return (max(self.values) - min(self.values)) / middle if middle else 0.0


@frozen
class Row:
    """The figures of one contender in one setting.

    Attributes:
        setting: For example ``5,000 a page``.
        figures: By name with unit, for example ``CPU us/item``.
        note: A remark, or why there are no figures.
    """

    setting: str
    contender: str
    figures: Mapping[str, Figure] = Factory(dict)
    note: str = ""


def row(setting: str, contender: str, note: str = "", **figures: float) -> Row:
    """Return a row of figures measured once; underscores in names become spaces."""
    named = {name.replace("_", " "): Figure((value,)) for name, value in figures.items()}
    return Row(setting, contender, named, note)


@frozen
class Rows:
    """All rows of an answer."""

    rows: tuple[Row, ...] = field(converter=tuple[Row, ...])

    def median(self, setting: str, contender: str, figure: str) -> float:
        """Return the median of one figure.

        Raises:
            NotMeasuredError: No row has it.
        """
        for one in self.rows:
            if (one.setting, one.contender) == (setting, contender) and figure in one.figures:
                return one.figures[figure].median
        raise NotMeasuredError(f"no {figure!r} of {contender!r} at {setting!r}")

    def only(self, *names: str) -> Rows:
        """Return the rows with only the figures in *names*."""
        return Rows(
            evolve(one, figures={name: one.figures[name] for name in names if name in one.figures})
            for one in self.rows
        )


@frozen
class Pick:
    """One figure of one row; its ratio to that of *over*, or what it has beyond that of *beyond*.

    Both name another contender in the same setting.
    """

    setting: str
    contender: str
    figure: str
    over: str = ""
    beyond: str = ""

    def __call__(self, rows: Rows) -> float:
        """Return the figure.

        Raises:
            NotMeasuredError: No row has it.
        """
        value = rows.median(self.setting, self.contender, self.figure)
        if self.over:
            return value / rows.median(self.setting, self.over, self.figure)
        if self.beyond:
            return value - rows.median(self.setting, self.beyond, self.figure)
        return value

    def of_others(self, rows: Rows) -> dict[str, float]:
        """Return the same for all other contenders in the setting."""
        return {
            row.contender: evolve(self, contender=row.contender)(rows)
            for row in rows.rows
            if row.setting == self.setting and self.figure in row.figures
            if row.contender not in (self.contender, self.over, self.beyond)
        }


@frozen
class Goal:
    """A figure to reach.

    Attributes:
        what: The figure in words.
        bound: In the unit that *what* names.
        measured: Picks the figure from the rows.
        needs_full: Whether it is not judged at the smaller sizes of ``--quick``.
        limit: The contender that does only the unavoidable work: the machine's limit.
        headline: Whether the page of figures shows it.
    """

    what: str
    relation: Literal["<=", ">="]
    bound: float
    measured: Callable[[Rows], float]
    needs_full: bool = field(default=True, kw_only=True)
    limit: str = field(default="", kw_only=True)
    headline: bool = field(default=False, kw_only=True)


def at_most(bound: float, what: str, measured: Callable[[Rows], float], **more: Any) -> Goal:
    """Return the goal that *what* is not above *bound*."""
    return Goal(what, "<=", bound, measured, **more)


def at_least(bound: float, what: str, measured: Callable[[Rows], float], **more: Any) -> Goal:
    """Return the goal that *what* is not below *bound*."""
    return Goal(what, ">=", bound, measured, **more)


@frozen
class Verdict:
    """The result of a goal; *value* is None if it was not measured.

    Attributes:
        beside: The same figure of the other contenders in the run, by name.
    """

    goal: Goal
    value: float | None
    skipped: bool = False
    beside: Mapping[str, float] = Factory(dict)

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        if self.goal.relation == "<=":
            return self.value <= self.goal.bound
        return self.value >= self.goal.bound

    @property
    def is_missed(self) -> bool:
        """Whether the goal should have been met but was not."""
        return not self.skipped and not self.is_met

    @property
    def word(self) -> str:
        """The result in one word."""
        if self.skipped:
            return "skipped"
        return "met" if self.is_met else "MISSED" if self.value is not None else "NOT MEASURED"


@frozen
class Question:
    """One benchmark.

    Attributes:
        name: Its name on the command line.
        asks: The question, in words.
        run: Answers it; the argument says whether to use small sizes.
        compare: (figure, contender): every row gets its ratio to that contender's figure.
        on_request: Whether it is asked only by name, since it takes long.
    """

    name: str
    asks: str
    run: Callable[[bool], Rows]
    goals: Sequence[Goal] = ()
    compare: tuple[str, str] | None = None
    on_request: bool = False

    def judge(self, rows: Rows, *, quick: bool) -> list[Verdict]:
        """Compare *rows* with the goals."""
        return [_judge(goal, rows, quick=quick) for goal in self.goals]


def question(
    asks: str, *goals: Goal, compare: tuple[str, str] | None = None, on_request: bool = False
) -> Callable[[Callable[[bool], Rows]], Question]:
    """Make a question of the function that answers it; it has the function's name."""
    return lambda run: Question(run.__name__, asks, run, goals, compare, on_request)


def _judge(goal: Goal, rows: Rows, *, quick: bool) -> Verdict:
    if quick and goal.needs_full:
        return Verdict(goal, None, skipped=True)
    try:
        value = goal.measured(rows)
    except NotMeasuredError:
        return Verdict(goal, None)
    beside = goal.measured.of_others(rows) if isinstance(goal.measured, Pick) else {}
    return Verdict(goal, value, beside=beside)
