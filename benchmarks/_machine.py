"""The machine on which figures are measured, and how processes share its cores."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("integration-sdk", "aiohttp", "msgspec", "attrs", "cattrs", "backoff")
TICKS = os.sysconf("SC_CLK_TCK")


def facts() -> dict[str, str]:
    """Return the relevant facts about this machine."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "packages": ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES),
    }


def quiet() -> bool:
    """Whether the machine is otherwise idle, as figures in seconds require."""
    return os.getloadavg()[0] < 0.5 * len(os.sched_getaffinity(0))


def pinned_to_last_core() -> None:
    """Keep this process, a server, on the last core; contenders stay on the first one."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds that another *process* has spent."""
    # After the name in brackets: state is field 3, user and system ticks are 14 and 15.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
