"""The contenders: processes of their own, which take turns in one run.

What a contender needs beyond the project's own environment is installed into a virtual
environment under ``results/environments``, made on first use. If that fails, the table says so
instead of showing figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache, partial
from hashlib import sha256
from typing import Any

from attrs import field, frozen

from benchmarks._machine import RESULTS, ROOT
from benchmarks._question import Figure, Row
from benchmarks.peers._frame import Job

INSTALL_SECONDS = 300


class ContenderFailedError(RuntimeError):
    """A contender could not be installed, or failed; the message is shown in the table."""


@frozen
class Peer:
    """A contender.

    Attributes:
        name: Its name in tables.
        script: Its module in ``benchmarks.peers``, and the function in it.
        packages: What it needs beyond the project's environment, with versions.
        share: Its share of the work; less for slow ones, since figures are per item.
        told: Additional fields of its job.
    """

    name: str
    script: str
    packages: tuple[str, ...] = ()
    share: float = 1.0
    told: Mapping[str, Any] = field(factory=dict, eq=False)

    def work(self, job: Job, *, seconds: float = 120) -> dict[str, Any]:
        """Run the script with *job* and return what it printed.

        Raises:
            ContenderFailedError: The script cannot be run, failed, or took too long.
        """
        module, _, function = self.script.partition(":")
        told = json.dumps({**asdict(job), **self.told, "started": time.time()})
        arguments = ("-m", f"benchmarks.peers.{module}", told, function)
        answer: dict[str, Any] = json.loads(self.python(*arguments, seconds=seconds))
        return answer

    def python(self, *arguments: str, seconds: float = 60) -> str:
        """Run Python, with its packages, and return the last line that it prints.

        Modules are compiled once, like installed ones.

        Raises:
            ContenderFailedError: The packages cannot be installed; Python failed or took too long.
        """
        env = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        env["PYTHONPYCACHEPREFIX"] = str(RESULTS / "bytecode")
        return _last_line(_run(_python_with(self.packages), *arguments, seconds=seconds, env=env))


@cache
def _python_with(packages: tuple[str, ...]) -> str:
    """Return a Python that has *packages*; without any, this one."""
    if not packages:
        return sys.executable
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = sha256(" ".join((version, *packages)).encode()).hexdigest()[:12]
    folder = RESULTS / "environments" / name
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        print(f"  installing {', '.join(packages)}", flush=True)
        try:
            _run(sys.executable, "-m", "venv", "--clear", str(folder), seconds=INSTALL_SECONDS)
            install = ("-m", "pip", "install", "--quiet", *packages)
            _run(python, *install, seconds=INSTALL_SECONDS)
        except ContenderFailedError as failure:
            raise ContenderFailedError(f"not installed: {failure}") from None
        (folder / "complete").write_text("\n".join(packages))
    return python


def _run(*command: str, seconds: float, env: Mapping[str, str] | None = None) -> str:
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired:
        raise ContenderFailedError(f"took more than {seconds:g} s") from None
    except subprocess.CalledProcessError as error:
        # The last line that looks like an error, or else the last one.
        lines = error.stderr.splitlines()
        named = [line for line in lines if "rror: " in line or "ERROR" in line]
        raise ContenderFailedError(_last_line("\n".join(named or lines)).strip()) from None
    return ran.stdout


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "said nothing")


# Turns, so that a temporary slowdown of the machine affects all of them

Turn = Callable[[], Mapping[str, float]]
"""Runs a contender once and returns its figures."""


def in_turn(setting: str, turns: Mapping[str, Turn], *, rounds: int) -> list[Row]:
    """Let contenders take their *turns*, and return a row for each, by name.

    Each round begins with another contender. One that fails gets no more turns, and its row has
    the reason and no figures.
    """
    order = list(turns)
    values = {name: defaultdict[str, list[float]](list) for name in order}
    failures: dict[str, str] = {}
    for number in range(rounds):
        first = number % len(order)
        for name in order[first:] + order[:first]:
            if name in failures:
                continue
            try:
                measured = turns[name]()
            except ContenderFailedError as failure:
                failures[name] = f"did not run: {failure}"
                values[name].clear()
            else:
                for figure, value in measured.items():
                    values[name][figure].append(value)
    return [
        Row(
            setting,
            name,
            {figure: Figure(seen) for figure, seen in values[name].items()},
            failures.get(name, ""),
        )
        for name in order
    ]


def peers_in_turn(
    setting: str, peers: Iterable[Peer], turn: Callable[[Peer], Mapping[str, float]], *, rounds: int
) -> list[Row]:
    """Let *peers* take turns."""
    return in_turn(setting, {peer.name: partial(turn, peer) for peer in peers}, rounds=rounds)


# This SDK, what people use today, and the machine's limits

CODAT = ("codat-lending==12.0.0", "codat-platform==6.0.0", "codat-accounting==0.35.0")
DLT = ("dlt==1.31.0",)
HTTPX = ("httpx==0.28.1",)

SDK = Peer("integration_sdk", "sdk:read")
RAW_SOCKET = Peer("raw socket + msgspec", "readers:raw_socket")
AIOHTTP_MSGSPEC = Peer("aiohttp + msgspec", "readers:aiohttp_msgspec")
AIOHTTP = Peer("aiohttp + json", "readers:aiohttp_json")
HTTPX_JSON = Peer("httpx", "readers:httpx_json", HTTPX, share=0.5)
DLT_CLIENT = Peer("dlt RESTClient", "readers:dlt_rest_client", DLT, share=0.25)
LENDING = Peer("codat-lending", "vendor:read", CODAT, share=0.125)
