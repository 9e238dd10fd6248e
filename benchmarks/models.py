"""What it costs to get objects instead of dicts.

python -m benchmarks models
"""

from __future__ import annotations

from benchmarks._contenders import SDK
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import Peer, peers_in_turn
from benchmarks._question import Question, Row, Rows
from benchmarks._reading import CPU, SPEED, only, pages_of, reading

DICTS = Peer("dicts", SDK.script)
KINDS = (
    DICTS,
    Peer("attrs, 16 fields", "sdk_models", told={"model": "Invoice"}),
    Peer("attrs, 5 Decimals", "sdk_models", told={"model": "Exact"}),
    Peer("attrs, 3 fields", "sdk_models", told={"model": "Brief"}),
)


def models(quick: bool) -> Rows:
    items, rounds = (10_000, 1) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (1000,) if quick else (5000, 1000, 100):
            turn = reading(server, items, page_size=page_size, prefetch=8)
            rows += peers_in_turn(pages_of(page_size), KINDS, turn, rounds=rounds)
    return only(rows, CPU, SPEED)


MODELS = Question(
    "models",
    "What does it cost to get attrs objects with snake_case names in place of dicts?",
    models,
    goals=GOALS["models"],
    compare=(CPU, DICTS.name),
)
QUESTIONS = (MODELS,)
