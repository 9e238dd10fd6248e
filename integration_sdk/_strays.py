"""Tells a cancellation of the running task from one of something that it awaits.

Something that a task awaits may be cancelled: a token that a middleware renews for all tasks, a
page that is no longer needed. That is an ordinary failure. If it were taken for a cancellation of
the task itself, it would silently end the tasks that push and poll, and callers would wait forever.
"""

import asyncio


def is_cancelled() -> bool:
    """Return whether the running task itself has been cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
