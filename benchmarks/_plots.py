"""Plots of answers, if matplotlib is installed."""

# mypy: disable-error-code="import-not-found"
# matplotlib is an extra.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Points = Sequence[tuple[float, float]]


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def lines(
    path: Path,
    title: str,
    across: str,
    up: str,
    curves: Mapping[str, Points],
    *,
    logarithmic: bool = False,
    marker: str = "o",
) -> list[Path]:
    """Draw *curves* by name and return the file."""
    with _axes(path, title) as axes:
        for name, points in curves.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker=marker, label=name)
        if logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            ticks = sorted({x for points in curves.values() for x, _ in points})
            axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.legend(frameon=False)
    return [path]


def bars(path: Path, title: str, across: str, lengths: Mapping[str, float]) -> list[Path]:
    """Draw a bar for each of *lengths*, with its number, and return the file."""
    with _axes(path, title) as axes:
        names = list(lengths)[::-1]
        drawn = axes.barh(names, [lengths[name] for name in names])
        axes.bar_label(drawn, fmt="%.3g", padding=3)
        axes.set_xlabel(across)
        axes.margins(x=0.12)
    return [path]


@contextmanager
def _axes(path: Path, title: str) -> Iterator[Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415  # an extra; import it where it is used

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, facecolor="white")
