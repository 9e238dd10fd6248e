"""The two clocks of the coordinator."""

from __future__ import annotations

import asyncio
import time


def now() -> float:
    """Return the time of the running loop; it never goes back, and stands still in sleep."""
    return asyncio.get_running_loop().time()


def unix_time() -> float:
    """Return the current Unix time; it turns a ``Retry-After`` date into a wait."""
    return time.time()
