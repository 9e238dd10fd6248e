"""Parts in folders: ``PATH/<type>/company=<id>/part-00000.parquet``.

A part is written as a temporary file, synced and renamed; then the store counts it. A generation
that is not whole is staged in ``PATH/_staging`` and replaces what is shown by one exchange of
names. What a crash leaves between two of these steps is removed, or recognized as done, by
`begin`. Staging lies outside of ``PATH/<type>``, since ``**`` enters hidden folders.

Where several processes share a store, one of them may freeze between two steps and thaw behind
another that has taken over. No rename can be fenced, so no name is used twice: the token of the
claim is part of each.
"""

from __future__ import annotations

import asyncio
import ctypes
import gzip
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from attrs import define, evolve, field
from msgspec.structs import replace as evolve_state

from integration_sdk._checks import needed
from integration_sdk._pull.receipts import Receipt
from integration_sdk._pull.sink import Found, Packed
from integration_sdk._pull.state import Unit
from integration_sdk._pull.unit import Sums, UnitState, add_sums
from integration_sdk._records.old_columns import Columns
from integration_sdk._store.row import Fenced
from integration_sdk._store.rows import fenced
from integration_sdk._store.waiting import to_the_end
from integration_sdk._system import can_lock, lock, sync_directory, unlock
from integration_sdk.errors import ConfigurationError, PullError

T = TypeVar("T")
MARKER: Final = "_pull.json"
STAGING: Final = "_staging"
REJECTS: Final = "_rejects"
RECEIPTS: Final = "_receipts"
STORE: Final = "_pull.db"
_GENERATION: Final = "_generation"
_PART: Final = re.compile(r"part-(\d+)(?:-(\d+))?\.")
_STAGED: Final = re.compile(r"-(\d+)(\.tmp)?$")
LINES: Final = 256
"""Lines that are joined at a time: few enough for the cache of a processor."""
_HERE: Final = -100  # AT_FDCWD
_EXCHANGE: Final = 2  # RENAME_EXCHANGE; RENAME_SWAP of macOS


def written_format(path: Path) -> str | None:
    """Return the format of the pull that has written to *path*."""
    try:
        return str(json.loads((path / MARKER).read_bytes())["format"])
    except (OSError, ValueError):
        return None


@define
class Content:
    """What is in a file, for an audit; sums is None where numbers are not known."""

    rows: int
    ids: list[Any]
    sums: Sums | None = None


@define(eq=False)
class Files:
    """Parts in folders below *path*.

    Args:
        tokens: Whether the token of a claim is part of the name of a part.
    """

    path: Path
    encoder: Ndjson | Parquet
    tokens: bool = False
    _lock: int | None = field(init=False, default=None)

    @property
    def format(self) -> str:
        """The format of the parts."""
        return self.encoder.format

    @property
    def target(self) -> str:
        """The folder."""
        return str(self.path.resolve())

    async def open(self) -> str | None:
        """Return the id of the pull that has written here."""
        return await asyncio.to_thread(self._open)

    def _open(self) -> str | None:
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationError(f"{self.path} is not a folder")
        try:
            marker = json.loads((self.path / MARKER).read_bytes())
        except FileNotFoundError:
            names = [one.name for one in self.path.glob("*")]
            ours = (STORE, STAGING, f".{MARKER}")  # made before the marker
            others = [name for name in names if not name.startswith(ours)]
            if MARKER in names:
                return self._open()  # another pull has just begun
            if others:
                raise ConfigurationError(
                    f"{self.path} holds files that no pull wrote ({min(others)})"
                ) from None
            return None
        if marker["format"] != self.format:
            raise ConfigurationError(
                f"{self.path} was written as {marker['format']}, not {self.format}"
            )
        return str(marker["id"])

    async def introduce(self, pull: str) -> str:
        """Record the id of the *pull* that is going to write here; return whose place it is."""
        return await _do(self._introduce, pull)

    def _introduce(self, pull: str) -> str:
        (self.path / STAGING).mkdir(parents=True, exist_ok=True)
        if not self.tokens and can_lock():
            self._lock = os.open(self.path / STAGING / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock(self._lock)
            except BlockingIOError:
                raise ConfigurationError(
                    f"{self.path} is being written by another pull; several at once need a "
                    "PostgreSQL store"
                ) from None
        if (owner := self._open()) is not None:
            return owner
        marker = {"id": pull, "format": self.format}
        replace_file(self.path / MARKER, json.dumps(marker).encode())
        return pull

    async def begin(self, unit: Unit, *, full: bool) -> UnitState:
        """Remove what was not committed; return where *unit* stands."""
        return await _do(self._begin, unit, full)

    def _begin(self, unit: Unit, full: bool) -> UnitState:
        state = self._take_over(unit)
        folder = self._folder(unit, state)
        held: dict[int, tuple[int, Path]] = {}
        for path in sorted(folder.glob("part-*")):
            found = _PART.match(path.name)
            number, token = (int(found[1]), int(found[2] or 0)) if found else (-1, 0)
            _check_token(unit, token)
            if not state.first <= number < state.parts:
                _remove(path)
            elif number in held:  # of two with one number, the later claim's was committed
                (_, lower), held[number] = sorted([held[number], (token, path)])
                _remove(lower)
            else:
                held[number] = token, path
        for number in range(state.first, state.parts):
            if number not in held and not full:
                raise PullError(
                    f"{self.path} lacks part-{number:05} of {unit}; --full reads it again"
                )
        return state

    def _shown_generation(self, unit: Unit) -> int:
        try:
            return int((self._shown(unit) / _GENERATION).read_text())
        except FileNotFoundError:
            return 0

    def _take_over(self, unit: Unit) -> UnitState:
        """Take over the generation that is staged, if there is one, and remove all else there."""
        state, root = unit.state, self._staging(unit)
        ours = self._staged(unit, state)
        left = {one: _token(one) for one in root.glob("*")}
        _check_token(unit, max(left.values(), default=0))
        if not state.is_shown:
            staged = [one for one in left if one.name.startswith(f"g{state.generation}-")]
            if staged:
                newest = max(staged, key=left.__getitem__)
                newest.rename(ours)
                del left[newest]
            else:
                ours.mkdir(parents=True)
            # Only now: until it was renamed, the claim before could exchange it, and not tell.
            if self._shown_generation(unit) == state.generation:
                state = evolve_state(state, live=state.generation)
                left[ours] = unit.document.token
        for one in left:
            _remove(one)
        return state

    def pack(self, unit: Unit, items: list[bytes], columns: Columns) -> Packed:
        """Write *items* as a temporary file."""
        number, token = unit.state.parts, unit.document.token
        path = self._staging(unit) / f"part-{number:05}-{token}.tmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = self.encoder.write(path, items, columns)
        if not packed.rows:
            path.unlink(missing_ok=True)
            return packed
        return evolve(packed, content=path, size=path.stat().st_size)

    async def commit(self, unit: Unit, packed: Packed, after: UnitState) -> None:
        """Rename the part, then record *after*."""
        if packed.rejects:
            await _do(self._reject, unit, packed.rejects)
        part = None
        if packed.content is not None:
            name = f"-{unit.document.token}" if self.tokens else ""
            part = self._folder(unit, after) / (
                f"part-{unit.state.parts:05}{name}.{self.encoder.extension}"
            )
            await _do(_rename, packed.content, part)
        elif after.generation != unit.state.generation:
            # Other folders are left to `begin`: who was frozen here would remove a successor's.
            await _do(partial(self._staged(unit, after).mkdir, parents=True, exist_ok=True))
        try:
            await unit.save(after)
        except Fenced:
            if part is not None:
                part.unlink(missing_ok=True)
            raise

    async def finish(self, unit: Unit, after: UnitState) -> None:
        """Exchange the staged generation for the one that is shown."""
        shows, replaced = not unit.state.is_shown, self._staged(unit, unit.state)
        if shows:
            await _do(self._show, unit)
        await unit.save(after)
        if shows:
            await _do(_remove, replaced)

    def _show(self, unit: Unit) -> None:
        staged, shown = self._staged(unit, unit.state), self._shown(unit)
        replace_file(staged / _GENERATION, str(unit.state.generation).encode())
        shown.parent.mkdir(parents=True, exist_ok=True)
        if shown.exists():
            exchange(staged, shown)
        else:
            staged.rename(shown)
        sync_directory(staged.parent)
        sync_directory(shown.parent)

    async def keep(self, receipt: Receipt) -> None:
        """Write it to ``_receipts``."""
        await _do(self._keep, receipt)

    def _keep(self, receipt: Receipt) -> None:
        path = self.path / RECEIPTS / f"{receipt.ended:%Y%m%dT%H%M%S.%f}Z.json"
        path.parent.mkdir(exist_ok=True)
        replace_file(path, receipt.to_json())

    async def receipts(self) -> list[bytes]:
        """Return all receipts, in their order."""
        paths = sorted((self.path / RECEIPTS).glob("*.json"))
        return await asyncio.to_thread(lambda: [path.read_bytes() for path in paths])

    async def found(self, data_type: str, company_id: str, held: UnitState) -> Found:
        """Return what is in the parts that readers see."""
        return await asyncio.to_thread(self._found, data_type, company_id, held)

    def _found(self, data_type: str, company_id: str, held: UnitState) -> Found:
        parts = sorted(self._shown_of(data_type, company_id).glob("part-*"))
        contents = [self.encoder.read(part) for part in parts]
        sums: Sums | None = {}
        for content in contents:
            sums = None if sums is None or content.sums is None else add_sums(sums, content.sums)
        number = int(found[1]) if parts and (found := _PART.match(parts[-1].name)) else -1
        return Found(
            rows=sum(content.rows for content in contents),
            ids=len({one for content in contents for one in content.ids}),
            size=sum(part.stat().st_size for part in parts),
            sums=sums,
            is_ahead=number >= held.parts,
        )

    async def aclose(self) -> None:
        """Let another pull write here."""
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None

    # Places

    def _shown(self, unit: Unit) -> Path:
        return self._shown_of(unit.data_type, unit.company_id)

    def _shown_of(self, data_type: str, company_id: str) -> Path:
        return self.path / _name(data_type) / f"company={_name(company_id)}"

    def _staging(self, unit: Unit) -> Path:
        return self.path / STAGING / _name(unit.data_type) / f"company={_name(unit.company_id)}"

    def _staged(self, unit: Unit, state: UnitState) -> Path:
        return self._staging(unit) / f"g{state.generation}-{unit.document.token}"

    def _folder(self, unit: Unit, state: UnitState) -> Path:
        return self._shown(unit) if state.is_shown else self._staged(unit, state)

    def _reject(self, unit: Unit, rejects: list[tuple[bytes, str]]) -> None:
        path = self.path / REJECTS / f"{_name(unit.data_type)}.ndjson"
        path.parent.mkdir(exist_ok=True)
        company, lines = unit.company_id, list[bytes]()
        for record, reason in rejects:
            text = record.decode(errors="replace")
            line = {"company": company, "reason": reason, "record": text}
            lines.append(msgspec.json.encode(line) + b"\n")
        with path.open("ab") as file:
            file.writelines(lines)
            _sync(file)


def _name(text: str) -> str:
    """Return *text* as part of one file name: the service chooses ids, and may put slashes in."""
    return quote(text, safe="")


async def _do(work: Callable[..., T], *arguments: Any) -> T:
    """Run *work* in a thread, to its end: cancelled, it would go on when others have the place."""
    return await to_the_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments)))


def _remove(path: Path) -> None:
    """Remove a file or a folder, unless somebody who thawed has done so, or writes there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _token(staged: Path) -> int:
    found = _STAGED.search(staged.name)
    return int(found[1]) if found else 0


def _check_token(unit: Unit, token: int) -> None:
    """Leave alone what a later claim has made."""
    if token > unit.document.token:
        raise fenced(str(unit))


def _rename(one: Path, other: Path) -> None:
    one.rename(other)
    sync_directory(other.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file, whole or not at all."""
    new = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    with new.open("wb") as file:
        file.write(content)
        _sync(file)
    _rename(new, path)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders in one step; where the system cannot, in two."""
    c = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = c.renamex_np(*names, _EXCHANGE)
    elif hasattr(c, "renameat2"):
        failed = c.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)
    else:
        failed = -1
    if failed:
        if not one.exists():
            raise FileNotFoundError(one)
        aside = one.with_name(f"old-{one.name}")
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


# Formats


class _Id(msgspec.Struct):
    id: Any = None


_IDS: Final = msgspec.json.Decoder(_Id)


@define
class Ndjson:
    """A record a line, as the service wrote it.

    Args:
        compression: "gz", "zst", or None.
    """

    compression: str | None = None
    format: str = "ndjson"

    def __attrs_post_init__(self) -> None:
        self._open()  # so that a missing package is noticed at once

    @property
    def extension(self) -> str:
        """Of the files."""
        return f"ndjson.{self.compression}" if self.compression else "ndjson"

    def write(self, path: Path, items: list[bytes], _: Columns) -> Packed:
        """Write *items* to a new file; return what was written, without its place."""
        rows = len(items)
        if any(b"\n" in item for item in items):
            # Between tokens, since a text has it escaped.
            items = [item.replace(b"\n", b" ") for item in items]
        compress = self._open()
        with path.open("wb") as file:
            if compress is not None:
                file.write(compress(b"\n".join(items) + b"\n"))
                items = []
            for start in range(0, len(items), LINES):
                file.write(b"\n".join(items[start : start + LINES]))
                file.write(b"\n")
            _sync(file)
        return Packed(rows=rows)

    def read(self, path: Path) -> Content:
        """Return what is in a file."""
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            data = needed("zstandard", "zstd", "reading zst").decompress(data)
        records = _IDS.decode_lines(data)
        return Content(len(records), [record.id for record in records])

    def _open(self) -> Callable[[bytes], bytes] | None:
        if self.compression == "gz":
            return lambda data: gzip.compress(data, 6, mtime=0)
        if self.compression == "zst":
            zstd: Any = needed("zstandard", "zstd", "ndjson compressed as zst")
            compress: Callable[[bytes], bytes] = zstd.ZstdCompressor().compress
            return compress
        return None


@define
class Parquet:
    """Columns that are learned, and ``_pulled_at``."""

    format: str = "parquet"
    extension: str = "parquet"

    def __attrs_post_init__(self) -> None:
        needed("pyarrow", "arrow", "parquet")

    def write(self, path: Path, items: list[bytes], columns: Columns) -> Packed:
        """Write *items* to a new file."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        from integration_sdk._records import arrow  # noqa: PLC0415

        batch = arrow.read(items, columns)
        rows = batch.table.num_rows
        if rows:
            pulled = pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")), rows)
            with path.open("wb") as file:
                pq.write_table(
                    batch.table.append_column("_pulled_at", pulled), file, compression="zstd"
                )
                _sync(file)
        return Packed(
            rows=rows, rejects=batch.rejects, sums=arrow.sums(batch.table), columns=batch.columns
        )

    def read(self, path: Path) -> Content:
        """Return what is in a file."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        from integration_sdk._records import arrow  # noqa: PLC0415

        file = pq.ParquetFile(path)
        ids = file.read(["id"])["id"].to_pylist() if "id" in file.schema_arrow.names else []
        return Content(file.metadata.num_rows, ids, arrow.sums(file.read()))
