"""Cancellations that are somebody else's.

A middleware or a source of keys may await something shared, such as a token being renewed, that
is cancelled. That is a failure like any other: taken for a cancellation of the call, it would
silently end the tasks that push and poll, and whoever waits for them would wait for ever.
"""

import asyncio


def is_cancelled() -> bool:
    """Return whether somebody has asked the running task to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
