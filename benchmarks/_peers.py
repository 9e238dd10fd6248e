"""Contenders as processes, and their environments.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import field, frozen

from benchmarks._question import Row
from benchmarks._turns import ContenderFailedError, interleaved

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INSTALL_SECONDS = 300


@frozen
class Peer:
    """A contender.

    Attributes:
        name: Its name in tables.
        script: Its module in ``benchmarks.peers``.
        packages: What it needs beyond the project's environment, with versions.
        share: Its share of the work; less for slow ones, since figures are per item.
        told: Additional fields of its job.
    """

    name: str
    script: str
    packages: tuple[str, ...] = ()
    share: float = 1.0
    told: Mapping[str, Any] = field(factory=dict, eq=False)

    def work(self, job: Mapping[str, Any], *, seconds: float = 120) -> dict[str, Any]:
        """Run the script with *job* and return what it printed.

        Raises:
            ContenderFailedError: The script cannot be run, failed, or took too long.
        """
        command = [python_with(self.packages), "-m", f"benchmarks.peers.{self.script}"]
        told = json.dumps({**job, **self.told, "started": time.time()})
        try:
            ran = subprocess.run(
                [*command, told],
                cwd=ROOT,
                env=as_installed(),
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ContenderFailedError(f"took more than {seconds:g} s") from None
        if ran.returncode:
            raise ContenderFailedError(_reason(ran.stderr))
        answer: dict[str, Any] = json.loads(_last_line(ran.stdout))
        return answer


def as_installed() -> dict[str, str]:
    """Return environment variables with which modules are compiled once, like installed ones."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(RESULTS / "bytecode")}


@cache
def python_with(packages: tuple[str, ...]) -> str:
    """Return a Python that has *packages*; without any, this one.

    Raises:
        ContenderFailedError: The packages cannot be installed.
    """
    if not packages:
        return sys.executable
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = sha256(" ".join((version, *packages)).encode()).hexdigest()[:12]
    folder = RESULTS / "environments" / name
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"  installing {', '.join(packages)}", flush=True)
        _install(folder, python, packages)
        (folder / "complete").write_text("\n".join(packages))
    return str(python)


def _install(folder: Path, python: Path, packages: Sequence[str]) -> None:
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *packages],
    ):
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.CalledProcessError as error:
            raise ContenderFailedError(f"not installed: {_reason(error.stderr)}") from None
        except subprocess.TimeoutExpired:
            raise ContenderFailedError(f"not installed within {INSTALL_SECONDS} s") from None


def _reason(text: str) -> str:
    """Return the last line of *text* that looks like an error, or else the last line."""
    named = [line for line in text.splitlines() if "rror: " in line or "ERROR" in line]
    return _last_line("\n".join(named) or text).strip()


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "said nothing")


# Turns

PeerTurn = Callable[[Peer], Mapping[str, float]]


def peers_in_turn(setting: str, peers: Iterable[Peer], turn: PeerTurn, *, rounds: int) -> list[Row]:
    """Let *peers* take turns; the row of one that fails says so."""
    return interleaved(setting, {peer.name: partial(turn, peer) for peer in peers}, rounds=rounds)
