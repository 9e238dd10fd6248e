"""How long it takes from the start of a process to the first record.

python -m benchmarks first_item
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks._contenders import AIOHTTP, DLT_CLIENT, HTTPX_JSON, LENDING, SDK
from benchmarks._goals import GOALS
from benchmarks._page_server import page_server
from benchmarks._peers import Peer, peers_in_turn
from benchmarks._question import Question, Rows


def first_item(quick: bool) -> Rows:
    rounds = 3 if quick else 7
    with page_server(1000) as server:

        def turn(peer: Peer) -> Mapping[str, float]:
            job = {"base_url": server.base_url, "page_size": 100, "first_only": True}
            return {"s to first item": peer.work(job)["since_start"]}

        peers = (SDK, AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING)
        return Rows(peers_in_turn("fresh process", peers, turn, rounds=rounds))


FIRST_ITEM = Question(
    "first_item",
    "How long from the start of the process to the first record?",
    first_item,
    goals=GOALS["first_item"],
    compare=("s to first item", AIOHTTP.name),
)
QUESTIONS = (FIRST_ITEM,)
