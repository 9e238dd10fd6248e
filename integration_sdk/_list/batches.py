"""A list as Arrow record batches; for those who have pyarrow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from integration_sdk._records.codec import Numbers
from integration_sdk._records.columns import Kinds, table


async def batches(items: AsyncGenerator[bytes], rows: int, numbers: Numbers) -> AsyncGenerator[Any]:
    """Yield *items* in record batches of *rows*."""
    kinds: Kinds = {}
    waiting: list[bytes] = []
    async with aclosing(items):
        async for item in items:
            waiting.append(item)
            if len(waiting) == rows:
                yield await asyncio.to_thread(_batch, waiting, kinds, numbers)
                waiting = []
        if waiting:
            yield await asyncio.to_thread(_batch, waiting, kinds, numbers)


def _batch(items: list[bytes], kinds: Kinds, numbers: Numbers) -> Any:
    return table(items, kinds, numbers).combine_chunks().to_batches()[0]
