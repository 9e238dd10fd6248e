"""What the standard library leaves open: cancelled tasks, renames that last, locks of a process."""

import asyncio
import os
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # not a POSIX system: `can_lock` tells


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


def can_lock() -> bool:
    """Return whether `lock` works here: that needs a POSIX system."""
    return fcntl is not None


def lock(descriptor: int) -> None:
    """Lock an open file until `unlock`, or until this process and all forked from it have ended.

    Raises:
        BlockingIOError: Somebody else has the lock.
        OSError: The file cannot be locked.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Close a file that was locked, or was to be."""
    os.close(descriptor)
