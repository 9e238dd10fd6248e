"""Questions to the event loop and the file system that the standard library leaves open."""

import asyncio
import os
from pathlib import Path


def current_task_cancelled() -> bool:
    """Return whether the running task itself is cancelled, not just something that it awaits.

    What a task awaits may be cancelled without it: a token that a middleware renews for all, a
    page that is no longer needed. That is an ordinary failure. Taken for a cancellation of the
    task, it would silently end the tasks that push and poll, and callers would wait forever.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def sync_directory(directory: Path) -> None:
    """Make a rename in *directory* survive a power cut; only POSIX systems need this."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
