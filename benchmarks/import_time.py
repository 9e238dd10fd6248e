"""How long the import takes, in a fresh process.

"both" is what a program that makes a `Client` waits for: aiohttp and everything for reading.
The coordinator is loaded by the first block, cattrs by the first push operation or error. The
package itself loads nothing until one of its names is used.

    python -m benchmarks import_time
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from benchmarks._contenders import CODAT, DLT, HTTPX
from benchmarks._goals import GOALS
from benchmarks._peers import (
    ROOT,
    Peer,
    as_installed,
    peers_in_turn,
    python_with,
)
from benchmarks._question import Question, Rows
from benchmarks._turns import ContenderFailedError

MODULES = (
    Peer("aiohttp", "import aiohttp"),
    Peer("integration_sdk", "import integration_sdk"),
    Peer("both", "import aiohttp; from integration_sdk import Client"),
    Peer("all, to push", "import aiohttp, cattrs; from integration_sdk import Client, Coordinator"),
    Peer("httpx", "import httpx", HTTPX),
    Peer("dlt RESTClient", "import dlt.sources.helpers.rest_client", DLT),
    Peer("codat-lending", "from codat_lending import CodatLending", CODAT),
)
"""Peers whose script is the import statement."""
MS = "import ms of CPU"
PROGRAM = "import time; t=time.process_time(); {}; print((time.process_time()-t)*1e3)"


def import_time(quick: bool) -> Rows:
    rounds = 3 if quick else 11
    return Rows(peers_in_turn("fresh process", MODULES, _import, rounds=rounds))


def _import(peer: Peer) -> Mapping[str, float]:
    command = [python_with(peer.packages), "-c", PROGRAM.format(peer.script)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=as_installed(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ran.returncode:
        raise ContenderFailedError(ran.stderr.strip().splitlines()[-1])
    return {MS: float(ran.stdout)}


IMPORT_TIME = Question(
    "import_time",
    "How long does the import take?",
    import_time,
    goals=GOALS["import_time"],
    compare=(MS, "aiohttp"),
)


QUESTIONS = (IMPORT_TIME,)
