"""What the standard library leaves open: cancelled tasks, renames that last, locks of a process."""

import asyncio
import os
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # not a POSIX system


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


def open_locked(path: Path) -> int:
    """Open or create a file that only its owner can access, and lock it until it is closed.

    Raises:
        BlockingIOError: Another process has locked it, or one that was forked from it.
        OSError: It is a link, or cannot be opened; or this is not a POSIX system.
    """
    if fcntl is None:
        raise OSError("files can be locked on POSIX systems only")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
