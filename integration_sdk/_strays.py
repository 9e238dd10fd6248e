"""Cancellations that are somebody else's.

What a task awaits may be cancelled: a token that a middleware renews for all, a page that was
recalled. That is a failure like any other: taken for a cancellation of the task itself, it would
silently end the tasks that push and poll, and whoever waits for them would wait for ever.
"""

import asyncio


def is_cancelled() -> bool:
    """Return whether somebody has asked the running task to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
