"""How a command ends: its exit code, what it cannot use, and Ctrl-C and SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from integration_sdk.errors import ConfigurationError

ALL_SUCCEEDED: Final = 0
SOME_DID_NOT: Final = 1
WRONG_USAGE: Final = 2
IN_DOUBT: Final = 3
INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def usable(what: str) -> Iterator[None]:
    """Say "*what*: why" if the system refuses what the block does."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{what}: {error.strerror}") from None


@contextmanager
def hearing_signals(hear: Callable[[], object], leave: Callable[[], object]) -> Iterator[None]:
    """Call *hear* on Ctrl-C or SIGTERM, between two steps of the event loop.

    A second signal before that calls *leave* at once, which is to end the process: the loop may be
    blocked for ever, for example by a full pipe that nobody reads. `loop.add_signal_handler` could
    not do that, and Python's own handler raises an exception wherever the code happens to be.
    """
    loop = asyncio.get_running_loop()
    unheard: list[int] = []

    def arrive(number: int, _: object) -> None:
        if unheard:
            leave()
        unheard.append(number)
        loop.call_soon_threadsafe(be_heard)

    def be_heard() -> None:
        unheard.clear()
        hear()

    usual = {one: signal.signal(one, arrive) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
