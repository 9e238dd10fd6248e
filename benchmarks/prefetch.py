"""How much faster a list is read when pages are fetched ahead.

python -m benchmarks prefetch
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path

from benchmarks import _plots
from benchmarks._contenders import SDK
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import Peer, peers_in_turn
from benchmarks._question import Figure, Question, Row, Rows
from benchmarks._reading import SECONDS, reading

WALKS: Mapping[str, tuple[int, int, float, tuple[int, ...]]] = {
    "40 pages of 100, 50 ms": (40, 100, 0.05, (0, 1, 2, 4, 8, 16)),
    "100 pages of 1,000, 100 ms": (100, 1000, 0.1, (0, 8)),
    "400 pages of 10, 100 ms": (400, 10, 0.1, (0, 32)),
}
"""Number of pages, their size, latency in seconds, and the numbers of pages ahead to try."""
FASTER, AT_BEST = "x faster", "x at best"


def prefetch(quick: bool) -> Rows:
    chosen = list(WALKS)[:1] if quick else list(WALKS)
    return Rows(row for walk in chosen for row in _walk(walk, rounds=1 if quick else 5))


def _walk(name: str, rounds: int) -> list[Row]:
    pages, size, latency, aheads = WALKS[name]
    readers = [Peer(_ahead(pages), SDK.script, told={"prefetch": pages}) for pages in aheads]
    # One page at a time is all waiting: it hardly varies, and 400 pages take 40 seconds.
    rounds = 1 if pages > 100 else rounds
    with page_server(pages * size, latency=latency) as server:
        rows = peers_in_turn(
            name, readers, reading(server, pages * size, page_size=size), rounds=rounds
        )
    return [_compared(row, rows[0]) for row in rows]


def _compared(row: Row, slow: Row) -> Row:
    if SECONDS not in row.figures or SECONDS not in slow.figures:
        return row
    base, took = slow.figures[SECONDS].median, row.figures[SECONDS]
    figures = {
        SECONDS: took,
        FASTER: Figure(base / one for one in took.values),
        AT_BEST: Figure((_at_best(WALKS[row.setting][0], _pages(row.contender)),)),
    }
    return Row(row.setting, row.contender, figures, row.note)


def _at_best(pages: int, ahead: int) -> float:
    """Return the best possible speedup: page 1 alone, then the rest, *ahead* at a time."""
    return pages / (1 + ceil((pages - 1) / (ahead + 1)))


def _pages(reader: str) -> int:
    return int(reader.split(maxsplit=1)[0]) if reader[0].isdigit() else 0


def _ahead(pages: int) -> str:
    return f"{pages} ahead" if pages else "one by one"


def _draw(rows: Rows, folder: Path) -> list[Path]:
    walk, (_, _, _, (_, *aheads)) = next(iter(WALKS.items()))
    measured = [(float(ahead), rows.median(walk, _ahead(ahead), FASTER)) for ahead in aheads]
    at_best = [(float(ahead), rows.median(walk, _ahead(ahead), AT_BEST)) for ahead in aheads]
    return _plots.lines(
        folder / "prefetch.png",
        f"Reading with pages fetched ahead: {walk} each",
        "pages fetched ahead",
        "times as fast as one by one",
        {"at best: page 1 alone, then the rest": at_best, "measured": measured},
        logarithmic=True,
    )


PREFETCH = Question(
    "prefetch",
    "How much faster is a list read when pages are fetched ahead?",
    prefetch,
    goals=GOALS["prefetch"],
    plot=_draw,
)
QUESTIONS = (PREFETCH,)
