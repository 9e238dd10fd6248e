"""A folder of parts: ``PATH/<type>/company=<id>/part-00000.parquet``.

A part is written as a temporary file, synced and renamed; then the unit's state counts it, in
``PATH/_state``. A generation that is not whole is staged there and replaces what is shown by one
exchange of names. What a crash leaves between two of these steps is removed, or recognized as
done, by `begin`. One process has the folder, and with Dask one worker each unit.
"""

from __future__ import annotations

import asyncio
import ctypes
import gzip
import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2s
from pathlib import Path
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
from attrs import define, field
from msgspec.structs import replace

from integration_sdk._checks import needed
from integration_sdk._pull.unit import Moved, State, Unit, clean
from integration_sdk._system import open_locked, sync_directory
from integration_sdk.errors import ConfigurationError, PullError

T = TypeVar("T")
_EXCHANGE: Final = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


@define(eq=False)
class Folder:
    """Parts in folders below *path*.

    Args:
        format: "ndjson" or "parquet"; None for the folder's own, or ndjson.
        compression: "gz" for ndjson, or None.
        shared: Whether another process has the folder, for whose run this one reads units.
    """

    path: Path
    format: str | None = None
    compression: str | None = None
    shared: bool = False
    _locks: dict[str, int] = field(init=False, factory=dict)
    _kinds: dict[Path, dict[str, str]] = field(init=False, factory=dict)
    _threads: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.format == "parquet":
            needed("pyarrow", "arrow", "parquet")
        # As many parts as are packed at a time take memory.
        self._threads = ThreadPoolExecutor(2, "pull")

    def __str__(self) -> str:
        return str(self.path)

    async def open(self) -> set[str]:
        """Lock the folder; return the ids of the companies whose records it holds."""
        return await self._do(self._open)

    def _open(self) -> set[str]:
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationError(f"{self.path} is not a folder")
        state = self.path / "_state"
        settings = state / "folder.json"
        others = [one.name for one in self.path.glob("*") if one != state]
        if not settings.exists() and (others or self.shared):
            raise ConfigurationError(f"{self.path} was not written by a pull, it holds {others}")
        state.mkdir(parents=True, exist_ok=True)
        if not self.shared and not self._hold("folder"):
            raise PullError(f"{self.path} is being written by another pull; run again later")
        if not settings.exists():
            kept = {"format": self.format or "ndjson", "compression": self.compression}
            put(settings, json.dumps(kept).encode())
        kept = json.loads(settings.read_bytes())
        if self.format is None:
            self.format, self.compression = kept["format"], self.compression or kept["compression"]
        if kept != {"format": self.format, "compression": self.compression}:
            raise ConfigurationError(
                f"{self.path} was written as {'.'.join(filter(None, kept.values()))}, "
                f"not {'.'.join(filter(None, (self.format, self.compression)))}"
            )
        found = state.glob("*/company=*")
        return {unquote(one.name.removesuffix(".json").partition("=")[2]) for one in found}

    async def aclose(self) -> None:
        """Let another pull write here."""
        self._threads.shutdown()
        for name in [*self._locks]:
            self._release(name)

    def _hold(self, name: str) -> bool:
        """Lock what is called so for this folder object; return False if another has it."""
        place = self.path / "_state/locks" / blake2s(name.encode(), digest_size=8).hexdigest()
        place.parent.mkdir(exist_ok=True)
        try:
            self._locks[name] = open_locked(place)
        except BlockingIOError:
            return False
        return True

    def _release(self, name: str) -> None:
        if name in self._locks:
            os.close(self._locks.pop(name))

    async def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    # Units

    async def begin(self, unit: Unit, *, full: bool) -> bool:
        """Take the unit, remove what was not committed, and load its state.

        Raises:
            PullError: A part is missing that was written, and the read is not a *full* one.
        """
        return await self._do(self._begin, unit, full)

    def _begin(self, unit: Unit, full: bool) -> bool:
        if not self._hold(str(unit)):
            return False
        place, shown, staged = self._places(unit)
        unit.saved = place.read_text() if place.exists() else ""
        state = msgspec.json.decode(unit.saved, type=State) if unit.saved else State()
        mark = shown / "_generation"
        if unit.saved and mark.exists() and int(mark.read_text()) == state.generation:
            state = replace(state, live=state.generation)  # perhaps this was not recorded
        if state.is_live:
            shutil.rmtree(staged, ignore_errors=True)
        lacking = {*range(state.first, state.parts)}
        for part in (shown if state.is_live else staged).glob("part-*"):
            number = int(part.name.partition(".")[0].removeprefix("part-"))
            if number not in lacking or part.suffix == ".tmp":
                part.unlink()
            lacking.discard(number)
        if lacking and not full:
            raise PullError(
                f"{self.path} lacks part-{min(lacking):05} of {unit}, which was written; "
                "full=True (--full) reads it again"
            )
        unit.state = state
        return True

    async def commit(self, unit: Unit, items: list[bytes], after: State) -> None:
        """Write a part and the state that counts it, and show a generation that is whole."""
        await self._do(self._commit, unit, items, after)

    def _commit(self, unit: Unit, items: list[bytes], after: State) -> None:
        place, shown, staged = self._places(unit)
        before = unit.state
        if (place.read_text() if place.exists() else "") != unit.saved:
            raise Moved
        is_new = after.generation != before.generation
        if is_new and not before.is_live:
            unit.receipt.rows = 0
        if items:
            unit.receipt.mended += clean(items)
            self._add(unit, items, shown if before.is_live else staged, staged)
            unit.receipt.rows += len(items)
            after = replace(after, parts=before.parts + 1)
        if after.live != before.live:
            self._save(unit, place, replace(after, live=before.live))
            staged.mkdir(parents=True, exist_ok=True)
            put(staged / "_generation", str(after.generation).encode())
            shown.parent.mkdir(parents=True, exist_ok=True)
            exchange(staged, shown)
            sync_directory(shown.parent)
        self._save(unit, place, after)
        if after.is_live or is_new:  # not before: the state on record counts what is staged
            shutil.rmtree(staged, ignore_errors=True)

    def _save(self, unit: Unit, place: Path, state: State) -> None:
        unit.state, unit.saved = state, msgspec.json.encode(state).decode()
        place.parent.mkdir(parents=True, exist_ok=True)
        put(place, unit.saved.encode())

    async def release(self, unit: Unit) -> None:
        """Let others have the unit."""
        self._release(str(unit))

    def _places(self, unit: Unit) -> tuple[Path, Path, Path]:
        """Return the file of the unit's state, and the folders of what is shown and staged."""
        data_type, *names = (quote(name, safe="") for name in unit.place)
        levels = zip(("company", "connection", "account"), names, strict=True)
        below = Path(data_type, *(f"{level}={name}" for level, name in levels if name))
        state = self.path / "_state"
        return state / f"{below}.json", self.path / below, state / "staged" / below

    # Parts

    def _add(self, unit: Unit, items: list[bytes], folder: Path, staged: Path) -> None:
        """Write the next part of *folder*, whole or not at all."""
        for one in (folder, staged):
            one.mkdir(parents=True, exist_ok=True)
        name = f"part-{unit.state.parts:05}"
        new = staged / f"{name}.tmp"  # not where readers would find it
        try:
            with new.open("wb", 1 << 20) as file:
                if self.format == "parquet":
                    self._write_parquet(file, unit.receipt.data_type, items)
                elif self.compression == "gz":
                    file.write(gzip.compress(b"\n".join(items) + b"\n", 6, mtime=0))
                else:
                    file.writelines(item + b"\n" for item in items)
                file.flush()
                os.fsync(file.fileno())
            new.rename(folder / ".".join(filter(None, (name, self.format, self.compression))))
        except OSError:
            new.unlink(missing_ok=True)  # it may have filled the disk
            raise
        sync_directory(folder)

    def _write_parquet(self, file: IO[bytes], data_type: str, items: list[bytes]) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        from integration_sdk._records.columns import table  # noqa: PLC0415 - needs pyarrow

        place = self.path / "_state" / f"{quote(data_type, safe='')}.columns.json"
        known, latest = None, self._kinds.get(place, {})
        while latest != known:  # again with what other parts have taught meanwhile
            known = latest
            rows = table(items, learned := dict(known))
            while not self._hold(f"columns of {data_type}"):
                time.sleep(0.01)  # in a thread
            try:
                latest = json.loads(place.read_bytes()) if place.exists() else {}
                if latest == known and learned != known:  # on record before they are used
                    put(place, json.dumps(learned).encode())
            finally:
                self._release(f"columns of {data_type}")
        self._kinds[place] = learned
        pq.write_table(rows, file, compression="zstd")


def put(path: Path, content: bytes) -> None:
    """Write a small file, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_directory(path.parent)


def exchange(one: Path, other: Path) -> None:
    """Put folder *one* in the place of *other* in one step; in two, where the system cannot."""
    c, old = ctypes.CDLL(None), one.with_name(f"old-{one.name}")
    swap = getattr(c, "renameat2", None) or getattr(c, "renameatx_np", None)  # Linux, macOS
    paths = [os.fsencode(path.absolute()) for path in (one, other)]  # so no descriptors matter
    if other.exists() and (swap is None or swap(0, paths[0], 0, paths[1], _EXCHANGE)):
        shutil.rmtree(old, ignore_errors=True)  # of a run that was killed here
        other.rename(old)
    if not other.exists():
        one.rename(other)
        if old.exists():
            old.rename(one)
