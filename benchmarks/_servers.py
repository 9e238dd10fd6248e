"""A server in a process of its own, until the block is left."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


@contextmanager
def in_own_process(serve: Callable[..., None], *told: Any) -> Iterator[tuple[Connection, int]]:
    """Run ``serve(pipe, *told)``; yield the other end of the pipe, and the process' id."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, *told), daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield ours, process.pid or 0
    finally:
        process.kill()
        process.join()
        ours.close()
