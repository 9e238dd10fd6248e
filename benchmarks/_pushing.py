"""Pushing many records: how many requests, how late, for how much CPU.

A sandbox on another core takes about two seconds for each push. Everybody pushes the same
invoices to the same number of companies, and reports when each push was known to be final;
the sandbox says when it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from benchmarks import _plots
from benchmarks._machine import cpu_seconds
from benchmarks._peers import VENDOR, ContenderFailedError, Peer, Turn, interleaved
from benchmarks._push_server import push_server
from benchmarks._question import Goal, Question, Rows

SDK = Peer("integration_sdk", "sdk_pushing")
TASKS = Peer("a task per push", "task_per_push", share=0.2)
GATHER = Peer("gather + sleep", "gather_and_sleep", share=0.2)
BACKOFF = Peer("bare backoff", "bare_backoff", share=0.2)
VENDOR_LOOP = Peer("codat SDKs in a loop", "vendor_pushing", VENDOR, share=0.01)
CONTENDERS = (SDK, TASKS, GATHER, BACKOFF, VENDOR_LOOP)

COMPANIES = 10
TAKES = (1.5, 2.5)
"""Seconds of a push, between two times."""

REQUESTS = "requests/push"
DELAY = "delay p50 s"
CPU = "CPU s/1,000"


def pushing(quick: bool) -> Rows:
    pushes, rounds = (1000, 1) if quick else (10_000, 5)
    return Rows(interleaved(_setting(pushes), CONTENDERS, _turns(pushes), rounds=rounds))


def _setting(pushes: int) -> str:
    return f"{pushes:,} pushes"


def _turns(pushes: int) -> Turn:
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
        delays = [at - served.ended[key] for key, at in known.items()]
        return {
            "pushes": wanted,
            REQUESTS: served.requests / wanted,
            DELAY: median(delays),
            "delay p95 s": quantiles(delays, n=20)[-1],
            CPU: told["cpu"] / wanted * 1000,
            "pushes/s": wanted / told["seconds"],
            "KiB/push": told["peak_mib"] * 1024 / wanted,
            "server busy %": busy / told["seconds"] * 100,
        }

    return turn


def _goal(what: str, bound: float, figure: str) -> Goal:
    def measured(rows: Rows) -> float:
        return rows.median(_setting(10_000), SDK.name, figure)

    return Goal(what, "<=", bound, measured, needs_full=True)


def _draw(rows: Rows, folder: Path) -> list[Path]:
    lengths = {
        row.contender: row.figures[REQUESTS].median for row in rows.rows if REQUESTS in row.figures
    }
    title = "Requests per settled push, 10 companies, about 2 s each"
    return _plots.bars(folder / "pushing.png", title, "requests", lengths)


PUSHING = Question(
    "pushing",
    "What does it take to push many records and to know how each ended?",
    pushing,
    goals=[
        _goal("requests per settled push, 10,000 in 10 companies, ~2 s each", 1.05, REQUESTS),
        _goal("p50 of the delay in s until an end is known", 0.15, DELAY),
        _goal("client CPU in s per 1,000 pushes", 0.10, CPU),
    ],
    compare=(REQUESTS, SDK.name),
    plot=_draw,
)

QUESTIONS = (PUSHING,)
