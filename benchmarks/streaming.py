"""What one streamed record costs, compared with the least that it can cost.

The limit is a blocking socket and msgspec: receive a page, split it into its records, decode
each. "aiohttp + msgspec" is the best that aiohttp allows: a page at a time, decoded by the faster
of the two ways, nothing else. "aiohttp + json" is what most people write. "receive only" decodes
nothing: the server's own limit.

    python -m benchmarks streaming
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import _plots
from benchmarks._contenders import AIOHTTP_MSGSPEC, RAW_SOCKET, READERS, SDK, SERVER
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import peers_in_turn
from benchmarks._question import Question, Row, Rows
from benchmarks._reading import BUSY, CPU, PEAK, SPEED, only, pages_of, reading

FAST = (RAW_SOCKET, SDK, AIOHTTP_MSGSPEC)
SLOW = tuple(peer for peer in READERS if peer not in FAST)


def streaming(quick: bool) -> Rows:
    items, rounds = (8000, 1) if quick else (200_000, 7)
    rows: list[Row] = []
    for page_size in (5000, 1000, 100):
        setting = pages_of(page_size)
        # The fast ones read for two seconds, so that their ratio is not that of a warm-up.
        with page_server(items) as server:
            turn = reading(server, items, page_size=page_size, prefetch=8)
            rows += peers_in_turn(setting, FAST, turn, rounds=rounds)
        with page_server(items // 5) as server:
            turn = reading(server, items // 5, page_size=page_size, prefetch=8)
            rows += peers_in_turn(setting, SLOW, turn, rounds=min(rounds, 3))
            rows += only(peers_in_turn(setting, (SERVER,), turn, rounds=rounds), SPEED, BUSY).rows
    return only(rows, CPU, SPEED, PEAK, "items", "requests", BUSY)


def _draw(rows: Rows, folder: Path) -> list[Path]:
    setting = pages_of(1000)
    lengths = {
        row.contender: row.figures[CPU].median
        for row in rows.rows
        if row.setting == setting and CPU in row.figures
    }
    title = "CPU per streamed record of 2.1 KB, 1,000 a page"
    return _plots.bars(folder / "streaming.png", title, "microseconds", lengths)


STREAMING = Question(
    "streaming",
    "What does one streamed record cost, beside the least that it can cost?",
    streaming,
    goals=GOALS["streaming"],
    compare=(CPU, RAW_SOCKET.name),
    plot=_draw,
)
QUESTIONS = (STREAMING,)
