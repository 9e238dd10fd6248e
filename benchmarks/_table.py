"""Rows as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._question import Figure, Question, Row, Rows, Verdict


def table(question: Question, rows: Rows) -> str:
    """Return the rows as a table: medians, spreads of repeated measurements, and ratios."""
    names = list(dict.fromkeys(name for row in rows.rows for name in row.figures))
    ratio = [_ratio_name(question.compare)] if question.compare else []
    lines = [["setting", "contender", *names, *ratio]]
    last = ""
    for row in rows.rows:
        shown = [_cell(row.figures.get(name)) for name in names]
        setting, last = ("" if row.setting == last else row.setting), row.setting
        cells = [setting, row.contender, *shown]
        lines.append(cells + [_ratio(row, rows, question.compare) for _ in ratio])
    notes = [f"  {row.setting}, {row.contender}: {row.note}" for row in rows.rows if row.note]
    return "\n".join([*_aligned(lines), *notes])


def verdicts(judged: Sequence[Verdict]) -> str:
    """Return one line for each goal."""
    cells = [
        [
            one.word,
            one.goal.what,
            number(one.value),
            one.goal.relation,
            number(one.goal.bound),
            "" if one.limit is None else f" limit here {number(one.limit)}: {one.goal.limit}",
        ]
        for one in judged
    ]
    return "\n".join(_aligned(cells))


def as_json(question: Question, rows: Rows, judged: Sequence[Verdict]) -> dict[str, Any]:
    """Return the answer for a JSON file; every measured value is kept."""
    return {
        "question": question.name,
        "asks": question.asks,
        "rows": [
            {
                "setting": row.setting,
                "contender": row.contender,
                "note": row.note,
                "figures": {name: _figure(figure) for name, figure in row.figures.items()},
                "series": dict(row.series),
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


def _figure(figure: Figure) -> Mapping[str, Any]:
    return {"median": figure.median, "values": list(figure.values)}


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


def _ratio_name(compare: tuple[str, str]) -> str:
    return f"x {compare[1]}"


def _ratio(row: Row, rows: Rows, compare: tuple[str, str] | None) -> str:
    if compare is None:
        return ""
    figure, to = compare
    try:
        return f"{rows.ratio(row.setting, row.contender, figure, to):.2f}"
    except (LookupError, ZeroDivisionError):
        return "-"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if position < 2 else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
