"""How long until the SDK is imported, and until the first record is there.

python -m benchmarks import_time first_item
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from benchmarks._peers import (
    DLT,
    HTTPX,
    ROOT,
    VENDOR,
    ContenderFailedError,
    Peer,
    interleaved,
    python_with,
)
from benchmarks._question import Goal, Question, Rows
from benchmarks._reading import AIOHTTP, DLT_CLIENT, HTTPX_JSON, LENDING, SDK
from benchmarks.page_server import page_server

MODULES = {
    "aiohttp": Peer("aiohttp", "aiohttp"),
    "sdk": Peer("integration_sdk", "integration_sdk"),
    "sdk and aiohttp": Peer("both", "aiohttp, integration_sdk, integration_sdk._session"),
    "httpx": Peer("httpx", "httpx", HTTPX),
    "vendor": Peer("codat-lending", "codat_lending", VENDOR),
    "dlt": Peer("dlt RESTClient", "dlt.sources.helpers.rest_client", DLT),
}
"""Here a peer's script is what it imports."""
MS = "import ms"
PROGRAM = "import time; t=time.perf_counter(); import {}; print((time.perf_counter()-t)*1e3)"


def import_time(quick: bool) -> Rows:
    rounds = 3 if quick else 11
    return Rows(interleaved("fresh process", MODULES.values(), _import, rounds=rounds))


def _import(peer: Peer) -> Mapping[str, float]:
    command = [python_with(peer.packages), "-c", PROGRAM.format(peer.script)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode:
        raise ContenderFailedError(ran.stderr.strip().splitlines()[-1])
    return {MS: float(ran.stdout)}


def _beyond_aiohttp(rows: Rows) -> float:
    both = rows.median("fresh process", MODULES["sdk and aiohttp"].name, MS)
    return both - rows.median("fresh process", MODULES["aiohttp"].name, MS)


IMPORT_TIME = Question(
    "import_time",
    "How long does the import take?",
    import_time,
    goals=[Goal("import in ms beyond aiohttp's own", "<=", 100, _beyond_aiohttp)],
    compare=(MS, "aiohttp"),
)


def first_item(quick: bool) -> Rows:
    rounds = 3 if quick else 7
    with page_server(1000) as server:

        def turn(peer: Peer) -> Mapping[str, float]:
            job = {"base_url": server.base_url, "page_size": 100, "first_only": True}
            return {"s to first item": peer.work(job)["since_start"]}

        peers = (SDK, AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING)
        return Rows(interleaved("fresh process", peers, turn, rounds=rounds))


FIRST_ITEM = Question(
    "first_item",
    "How long from the start of the process to the first record?",
    first_item,
    goals=[
        Goal(
            "seconds from process start to the first item",
            "<=",
            0.2,
            lambda rows: rows.median("fresh process", SDK.name, "s to first item"),
        )
    ],
    compare=("s to first item", AIOHTTP.name),
)

QUESTIONS = (IMPORT_TIME, FIRST_ITEM)
