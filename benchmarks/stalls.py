"""How long reading keeps the rest of a service waiting.

A timer that should fire every millisecond runs beside the reader. What counts is how late it is,
including the ticks that a stall suppresses.

    python -m benchmarks stalls
"""

from __future__ import annotations

from benchmarks._contenders import AIOHTTP, HTTPX_JSON, SDK
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import Peer, peers_in_turn
from benchmarks._question import Question, Row, Rows
from benchmarks._reading import SPEED, STALL, WORST, only, pages_of, reading

TYPED = Peer("integration_sdk, attrs", "sdk_models", told={"model": "Invoice"})


def stalls(quick: bool) -> Rows:
    items, rounds = (10_000, 1) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (5000, 1000):
            turn = reading(server, items, page_size=page_size, prefetch=8, watch_loop=True)
            peers = (SDK, TYPED, AIOHTTP, HTTPX_JSON)
            rows += peers_in_turn(pages_of(page_size), peers, turn, rounds=rounds)
    return only(rows, STALL, WORST, SPEED)


STALLS = Question(
    "stalls",
    "How long does reading keep the rest of a service waiting?",
    stalls,
    goals=GOALS["stalls"],
)
QUESTIONS = (STALLS,)
