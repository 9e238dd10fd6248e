"""A program that writes to a store in a file until it is killed, and says what it has recorded.

``python -m tests.support.store_child PATH [careless]``: with *careless* its file is not synced at
each commit, as a seeded fault.
"""

import asyncio
import os
import sqlite3
import sys
from functools import partial
from typing import Any

from integration_sdk._store.row import Lane, Row, State
from integration_sdk._store.store import Store


class Careless(sqlite3.Connection):
    """A connection that takes "FULL" for "NORMAL"."""

    def execute(self, query: str, values: Any = ()) -> sqlite3.Cursor:
        return super().execute(query.replace("synchronous = FULL", "synchronous = NORMAL"), values)


async def write(path: str) -> None:
    journal = await Store(path)._lend(base_url="http://a", dialect="document")
    number, lane = len(await journal.everything()), Lane("acme", "connection", "invoices")
    while True:
        some = [Row(f"row-{number + at}", lane, version=0, payload=b"x") for at in range(8)]
        await asyncio.gather(*map(journal.write, some))
        await asyncio.gather(*(journal.write(one.next(State.SENDING)) for one in some))
        number += 8
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    if "careless" in sys.argv:
        vars(sqlite3)["connect"] = partial(sqlite3.connect, factory=Careless)
    asyncio.run(write(sys.argv[1]))
