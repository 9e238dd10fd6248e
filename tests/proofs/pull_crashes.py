"""Stops pulls at every step.

``python -m tests.proofs.pull_crashes crash|freeze|lapse|full FORMAT N``.

In a process of its own, since an audit hook cannot be removed. A step is a change to the file
system, as the hook sees it, or a write to the store. A pull may

* crash there: nothing more happens, as if the process had been killed, and another run follows;
* freeze there: another run takes its place meanwhile, and then it goes on;
* lapse: freeze there, go on while the other run is under way, and die before the store can say that
  it was overtaken;
* find the disk full there.

Then the next run must agree with the service, and readers must have seen whole units only. Only
every Nth step is tried. Prints how many were, and which.
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
from integration_sdk._store.memory import MemoryDocuments
from integration_sdk._store.rows import Documents
from integration_sdk.errors import PullError
from integration_sdk.sandbox import Sandbox
from tests.support.pull_support import (
    Crash,
    CrashingDocuments,
    CrashPoint,
    FreezePoint,
    assert_agrees,
    held,
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


class Halt(FreezePoint):
    """Waits as soon as the unit was begun."""

    def step(self, what: str) -> None:
        if what.startswith("before pull/unit"):
            super().step(what)


class KeptStore(Store):
    """A store whose documents are kept elsewhere, as those of a database are."""

    shared = True

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
    how: str
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
        point = CrashPoint(at, full_disk=self.how == "full")
        if self.how in {"freeze", "lapse"}:
            point = FreezePoint(at, dies=self.how == "lapse")
        self.disk.point = point
        store = KeptStore(CrashingDocuments(self._documents, point))
        stopped = asyncio.create_task(self.run(store, full=full, ends_well=self.how == "freeze"))
        if isinstance(point, FreezePoint):
            await self._overtake(point, stopped, full=full)
        else:
            await asyncio.wait([stopped])
        self.disk.point = None
        if isinstance(error := stopped.exception(), Crash | PullError):
            self.tried.append(f"{point.steps[-1]}: {error}")
        elif error is not None:
            raise error
        seen = set(shown_sizes(self.disk.path, "invoices"))
        assert seen <= sizes, f"{point.steps[-1]}: readers see {seen}"
        if self.how == "lapse":
            (company,) = self.sandbox.companies
            assert not (await held(self.disk.path, "invoices", company.id)).twice
        elif isinstance(point, FreezePoint):  # what it wrote after it was overtaken is gone
            await assert_agrees(self.sandbox, self.disk.path, after_deletions=not full)
        await self._lapse()
        # Every other time, a full run that did not end is gone on with, if it had begun.
        again = full and at % 2 == 0
        await self.run(KeptStore(self._documents), full=again, ends_well=True)
        await assert_agrees(self.sandbox, self.disk.path, after_deletions=not again)
        return point.is_reached

    async def _lapse(self) -> None:
        """End the claim of a process that is dead or frozen."""
        (company,) = self.sandbox.companies
        await self._documents.give_back([f"pull/unit/invoices/{company.id}"])

    async def _overtake(
        self, point: FreezePoint, frozen: asyncio.Task[None], *, full: bool
    ) -> None:
        """Let another run take the place of the *frozen* one, then let that go on."""
        while not (point.is_reached or frozen.done()):  # noqa: ASYNC110 - a thread may wait there
            await asyncio.sleep(0.001)
        self.disk.point = None
        await self._lapse()
        halt = Halt(0)
        if point.is_reached:
            documents = CrashingDocuments(self._documents, halt)
            other = asyncio.create_task(self.run(KeptStore(documents), full=full, ends_well=True))
            while self.how == "lapse" and not (halt.is_reached or other.done()):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            if self.how != "lapse":
                halt.thaw.set()
                await other
            self.tried.append(point.steps[point.at])
        point.thaw.set()
        await asyncio.wait([frozen])
        halt.thaw.set()
        if point.is_reached:
            await other

    async def run(self, store: Store, *, full: bool = False, ends_well: bool = False) -> None:
        receipt = await self.client.pull(
            ["invoices"],
            to=self.disk.path,
            format=self.format,  # type: ignore[arg-type]
            store=store,
            full=full,
            part_bytes=50_000,
        )
        assert not (ends_well and receipt.errors), [str(unit.error) for unit in receipt.errors]


async def main(how: str, format_: str, every: int) -> None:
    with TemporaryDirectory() as scratch:
        disk = Disk(Path(scratch) / "out")
        sys.addaudithook(disk.see)
        async with (
            Sandbox(companies=1, invoices=INVOICES) as sandbox,
            Client(sandbox.api_key, sandbox.base_url) as client,
        ):
            trial = Trial(client, sandbox, disk, format_, every, how)
            invoices = sandbox.data_set(sandbox.companies[0].id, "invoices")
            await trial.crash_everywhere(full=False, sizes={INVOICES})
            if how == "lapse":  # what it leaves in a folder that is shown, the next run removes
                sys.stdout.write("\n".join([str(len(trial.tried)), *trial.tried]))
                return
            for position in range(0, INVOICES, 2):
                invoices.edit_at(position, {"note": "edited", "modifiedDate": now()})
            await trial.crash_everywhere(full=False, sizes={INVOICES})
            invoices.delete_at(3)
            await trial.crash_everywhere(full=True, sizes={INVOICES, INVOICES - 1})
            await trial.crash_everywhere(full=True, sizes={INVOICES - 1})
    sys.stdout.write("\n".join([str(len(trial.tried)), *trial.tried]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
