"""How much memory reading a million records takes, and whether it grows meanwhile.

python -m benchmarks memory
"""

from __future__ import annotations

from benchmarks._contenders import AIOHTTP, HTTPX_JSON, SDK
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import peers_in_turn
from benchmarks._question import Question, Row, Rows
from benchmarks._reading import PEAK, SPEED, only, pages_of, reading

WINDOWS = ((5000, 4), (1000, 8), (100, 8))
"""Page size, and pages ahead."""


def memory(quick: bool) -> Rows:
    many = 100_000 if quick else 1_000_000
    rows: list[Row] = []
    with page_server(many) as server:
        for page_size, prefetch in WINDOWS:
            for items in (many // 4, many):
                setting = f"{pages_of(page_size)}, {items:,} items"
                turn = reading(server, items, page_size=page_size, prefetch=prefetch)
                # The others hold one page at a time, so one size of list is enough.
                once = (page_size, items) == (5000, many // 4)
                readers = (SDK, AIOHTTP, HTTPX_JSON) if once else (SDK,)
                rows += peers_in_turn(setting, readers, turn, rounds=1)
    return only(rows, PEAK, SPEED)


MEMORY = Question(
    "memory",
    "How much memory does a million records take, and does it grow on the way?",
    memory,
    goals=GOALS["memory"],
)
QUESTIONS = (MEMORY,)
