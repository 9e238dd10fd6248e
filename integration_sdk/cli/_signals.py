"""Ctrl-C and SIGTERM, heard between two turns of the loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def hearing_signals(hear: Callable[[], object], leave: Callable[[], object]) -> Iterator[None]:
    """Call *hear* on Ctrl-C or SIGTERM, between two turns of the loop.

    A signal's usual handler raises an exception in whatever code is under way, and a task that
    loses a turn by it never goes on. ``loop.add_signal_handler`` is not there on Windows.

    A second signal while the first is still unheard calls *leave* at once, which is to end the
    process: the loop may be held up for ever, as by a full pipe that nobody reads.
    """
    loop = asyncio.get_running_loop()
    unheard: list[int] = []

    def come(number: int, _: object) -> None:
        if unheard:
            leave()
        unheard.append(number)
        loop.call_soon_threadsafe(be_heard)

    def be_heard() -> None:
        unheard.clear()
        hear()

    usual = {one: signal.signal(one, come) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
