"""temporary: memory only."""
import os
from typing import Any
from integration_sdk._store2.memory import MemoryRows
from pathlib import Path

def is_url(where: object) -> bool:
    return isinstance(where, str) and where.startswith("postgres")

def is_path(where: object) -> bool:
    return isinstance(where, str | os.PathLike) and "://" not in os.fspath(where) and bool(Path(where).name)

class Store:
    def __init__(self, where: Any = None, **_: Any) -> None:
        self.rows = MemoryRows(durable=where is not None)
    async def lend(self, **_: Any) -> MemoryRows:
        return self.rows
    async def take_back(self) -> None: ...
    async def aclose(self) -> None: ...
