"""How many records a second arrive if every answer has some latency.

python -m benchmarks latency
"""

from __future__ import annotations

from benchmarks._contenders import RAW_SOCKET, READERS
from benchmarks._page_server import page_server
from benchmarks._peers import peers_in_turn
from benchmarks._question import Question, Row, Rows
from benchmarks._reading import PEAK, SPEED, only, reading


def latency(quick: bool) -> Rows:
    pages, rounds = (8, 1) if quick else (20, 3)
    rows: list[Row] = []
    for milliseconds in (20, 100):
        with page_server(pages * 1000, latency=milliseconds / 1000) as server:
            turn = reading(server, pages * 1000, page_size=1000, prefetch=8)
            rows += peers_in_turn(f"{milliseconds} ms", READERS, turn, rounds=rounds)
    return only(rows, SPEED, PEAK)


LATENCY = Question(
    "latency",
    "How many records a second arrive when every answer takes its time? 1,000 a page.",
    latency,
    compare=(SPEED, RAW_SOCKET.name),
)
QUESTIONS = (LATENCY,)
