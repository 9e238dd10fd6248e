"""Waiting for work that ends even if nobody waits for it any more."""

import asyncio
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: asyncio.Future[T]) -> T:
    """Await *work*, however often the caller is cancelled; an error of *work* goes first."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        work.result()
        raise
