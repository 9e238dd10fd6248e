"""What it takes to push many records and to know how each ended.

A sandbox on another core takes about two seconds for each push. All contenders push the same
invoices to the same companies and report when each push was known to be final; the sandbox
says when it was. "aiohttp POSTs alone" only sends the same records: the machine's limit.

    python -m benchmarks pushing
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from benchmarks import _plots
from benchmarks._contenders import COORDINATOR, POSTS, PUSHERS
from benchmarks._goals import GOALS
from benchmarks._machine import cpu_seconds
from benchmarks._peers import Peer, PeerTurn, peers_in_turn
from benchmarks._push_server import push_server
from benchmarks._question import Question, Rows
from benchmarks._turns import ContenderFailedError

COMPANIES = 10
TAKES = (1.5, 2.5)
"""Minimum and maximum seconds of a push."""

REQUESTS = "requests/push"
DELAY = "delay p50 s"
CPU = "CPU s/1,000"


def pushing(quick: bool) -> Rows:
    pushes, rounds = (1000, 1) if quick else (10_000, 3)
    return Rows(peers_in_turn(f"{pushes:,} pushes", PUSHERS, _turns(pushes), rounds=rounds))


def _turns(pushes: int) -> PeerTurn:
    def turn(peer: Peer) -> Mapping[str, float]:
        wanted = max(round(pushes * peer.share), COMPANIES)
        with push_server(COMPANIES, TAKES) as server:
            told = peer.work(
                {
                    "base_url": server.base_url,
                    "api_key": server.api_key,
                    "lanes": server.lanes,
                    "pushes": wanted,
                }
            )
            busy = cpu_seconds(server.process)
            served = server.served()
        known: dict[str, float] = told["known"]
        if len(known) != wanted:
            raise ContenderFailedError(f"settled {len(known)} of {wanted} pushes")
        return {
            "pushes": wanted,
            REQUESTS: served.requests / wanted,
            **(_delays(known, served.ended) if peer is not POSTS else {}),
            CPU: told["cpu"] / wanted * 1000,
            "pushes/s": wanted / told["seconds"],
            "KiB/push": told["peak_mib"] * 1024 / wanted,
            "server busy %": busy / told["seconds"] * 100,
        }

    return turn


def _delays(known: Mapping[str, float], ended: Mapping[str, float]) -> dict[str, float]:
    delays = [at - ended[key] for key, at in known.items()]
    return {DELAY: median(delays), "delay p95 s": quantiles(delays, n=20)[-1]}


def _draw(rows: Rows, folder: Path) -> list[Path]:
    lengths = {
        row.contender: row.figures[REQUESTS].median for row in rows.rows if DELAY in row.figures
    }
    title = "Requests per settled push, 10 companies, about 2 s each"
    return _plots.bars(folder / "pushing.png", title, "requests", lengths)


PUSHING = Question(
    "pushing",
    "What does it take to push many records and to know how each ended?",
    pushing,
    goals=GOALS["pushing"],
    compare=(CPU, COORDINATOR.name),
    plot=_draw,
)

QUESTIONS = (PUSHING,)
