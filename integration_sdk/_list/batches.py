"""A list as Arrow record batches; for those who have pyarrow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pyarrow as pa

from integration_sdk._records.arrow import Batch, in_schema, read
from integration_sdk._records.columns import NO_COLUMNS, Columns
from integration_sdk.errors import InvalidItem


async def batches(items: AsyncGenerator[bytes], rows: int, schema: Any) -> AsyncGenerator[Any]:
    """Yield *items* in record batches of *rows*."""
    columns = NO_COLUMNS
    waiting: list[bytes] = []
    async with aclosing(items):
        async for item in items:
            waiting.append(item)
            if len(waiting) == rows:
                batch = await asyncio.to_thread(_batch, waiting, columns, schema)
                columns, waiting = batch.columns, []
                yield batch.table.to_batches()[0]
        if waiting:
            yield (await asyncio.to_thread(_batch, waiting, columns, schema)).table.to_batches()[0]


def _batch(items: list[bytes], columns: Columns, schema: pa.Schema | None) -> Batch:
    batch = read(items, columns)
    for record, reason in batch.rejects:
        raise InvalidItem(f"an item cannot be a row: {reason}", raw=record)
    table = batch.table if schema is None else in_schema(batch.table, schema)
    return Batch(table.combine_chunks(), batch.columns)
