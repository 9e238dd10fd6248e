"""A process of its own that crashes pulls at every step: ``python -m tests.pull_crashes FORMAT N``.

A step is a change to the file system, as an audit hook sees it, or a write to the store. After a
crash at one of them nothing more happens to either, as if the process had been killed. Then the
next run must agree with the service, and readers must have seen whole units only.

With N, only every Nth step is tried. Prints how many were.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define, field

from integration_sdk import Client, Store
from integration_sdk._store2.memory import MemoryDocuments
from integration_sdk._store2.rows import Documents
from integration_sdk.sandbox import Sandbox
from tests.pull_support import (
    Crash,
    CrashingDocuments,
    CrashPoint,
    assert_agrees,
    now,
    shown_sizes,
)

INVOICES = 60
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}


@define
class Disk:
    """The file system below *path*, where a crash point counts what happens."""

    path: Path
    point: CrashPoint | None = None

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.point is None:
            return
        if event == "ctypes.dlsym" and arguments[1] in {"renameat2", "renamex_np"}:
            self.point.step("exchange")
        elif (event in CHANGES or (event == "open" and _writes(arguments))) and str(
            arguments[0]
        ).startswith(str(self.path)):
            self.point.step(f"{event} {Path(str(arguments[0])).name}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    return isinstance(arguments[1], str) and arguments[1][0] in "wax"


class KeptStore(Store):
    """A store whose documents are kept elsewhere, as those of a file are."""

    def __init__(self, documents: Documents) -> None:
        super().__init__()
        self._kept = documents

    async def documents(self, *, base_url: str | None = None, dialect: str = "") -> Documents:
        return self._kept


@define
class Trial:
    """Pulls that crash.

    Attributes:
        tried: The steps at which they did.
    """

    client: Client
    sandbox: Sandbox
    disk: Disk
    format: str
    every: int
    tried: list[str] = field(factory=list)

    async def crash_everywhere(self, *, full: bool, sizes: set[int]) -> None:
        """Crash at each step of a run, from what is there now; then let a run end well.

        sizes: How many records of a unit readers may see at any time.
        """
        base, documents = self.disk.path.with_name("base"), self._documents
        shutil.rmtree(base, ignore_errors=True)
        if self.disk.path.exists():
            shutil.copytree(self.disk.path, base)
        at = 0
        while await self._crashes(at, base, documents, full=full, sizes=sizes):
            at += self.every

    _documents: MemoryDocuments = field(init=False, factory=MemoryDocuments)

    async def _crashes(
        self, at: int, base: Path, documents: MemoryDocuments, *, full: bool, sizes: set[int]
    ) -> bool:
        shutil.rmtree(self.disk.path, ignore_errors=True)
        if base in self.disk.path.parent.iterdir():
            shutil.copytree(base, self.disk.path)
        self._documents = copy.deepcopy(documents)
        point = CrashPoint(at)
        self.disk.point = point
        try:
            await self.run(KeptStore(CrashingDocuments(self._documents, point)), full=full)
        except Crash as crash:
            self.tried.append(str(crash))
        finally:
            self.disk.point = None
        seen = set(shown_sizes(self.disk.path, "invoices"))
        assert seen <= sizes, f"{point.steps[-1]}: readers see {seen}"
        await self.run(KeptStore(self._documents), full=full)
        await assert_agrees(self.sandbox, self.disk.path, after_deletions=not full)
        return point.is_dead

    async def run(self, store: Store, *, full: bool = False) -> None:
        await self.client.pull(
            ["invoices"],
            to=self.disk.path,
            format=self.format,  # type: ignore[arg-type]
            store=store,
            full=full,
            part_bytes=50_000,
        )


async def main(format_: str, every: int) -> None:
    with TemporaryDirectory() as scratch:
        disk = Disk(Path(scratch) / "out")
        sys.addaudithook(disk.see)
        async with (
            Sandbox(companies=1, invoices=INVOICES) as sandbox,
            Client(sandbox.api_key, sandbox.base_url) as client,
        ):
            trial = Trial(client, sandbox, disk, format_, every)
            invoices = sandbox.data_set(sandbox.companies[0].id, "invoices")
            await trial.crash_everywhere(full=False, sizes={INVOICES})
            for position in range(0, INVOICES, 2):
                invoices.edit_at(position, {"note": "edited", "modifiedDate": now()})
            await trial.crash_everywhere(full=False, sizes={INVOICES})
            invoices.delete_at(3)
            await trial.crash_everywhere(full=True, sizes={INVOICES, INVOICES - 1})
            await trial.crash_everywhere(full=True, sizes={INVOICES - 1})
    sys.stdout.write("\n".join([str(len(trial.tried)), *trial.tried]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
