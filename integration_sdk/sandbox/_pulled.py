"""Records that a pull has written to files, in place of generated ones.

The folder is read as `client.pull` documents it: ``PATH/<type>/company=<id>/part-*``, NDJSON or
Parquet. Of a record that is there several times the last state counts.

In Parquet a field is null that a record does not have, numbers are wide decimals, and what fits no
column stands as JSON text. So nulls are left out, zeros at the end of fractions too, and such texts
become values again.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from integration_sdk.sandbox._books import Source
from integration_sdk.sandbox._call import decode, encode
from integration_sdk.sandbox._schemas import list_name


class _Shown(msgspec.Struct):
    """What tells a record's states apart."""

    id: str | int
    changed: Any = msgspec.field(default=None, name="modifiedDate")


_SHOWN = msgspec.json.Decoder(_Shown)
Pulled = Mapping[str, Mapping[str, Source]]
"""By company and data list."""


def read_pulled(folder: str | os.PathLike[str]) -> Pulled:
    """Return what the files below *folder* hold.

    Raises:
        ValueError: It is no such folder, or a file in it cannot be read.
    """
    root = Path(folder)
    found = sorted(root.glob("[!_.]*/company=*"))
    if not found:
        raise ValueError(
            f"{root} holds no NDJSON or Parquet files of a pull: "
            "nothing is called <type>/company=<id> there"
        )
    pulled: dict[str, dict[str, Source]] = {}
    for place in found:
        company = unquote(place.name.removeprefix("company="))
        kind = list_name(unquote(place.parent.name))
        pulled.setdefault(company, {})[kind] = _source(place)
    return pulled


def _source(place: Path) -> Source:
    """Return the last states of the records in *place*, in the order in which they came first."""
    states: dict[str, tuple[int, str, bytes]] = {}
    for number, part in enumerate(sorted(place.glob("part-*"))):
        try:
            for row in _rows(part):
                shown = _SHOWN.decode(row)
                state = number, str(shown.changed or ""), row
                # A part may hold an earlier state behind a later one, where the list moved.
                held = states.get(str(shown.id), state)
                if state[:2] >= held[:2]:
                    states[str(shown.id)] = state
        except Exception as error:  # whatever else wrote it, and whichever package reads it
            raise ValueError(f"{part} cannot be read as part of a pull: {error}") from error
    rows = [row for _, _, row in states.values()]
    places = {identifier: n for n, identifier in enumerate(states)}
    return Source(len(rows), lambda start, stop: rows[start:stop], places.get, alike=False)


def _rows(part: Path) -> Iterator[bytes]:
    """Yield the records in *part* as JSON."""
    match part.suffix:
        case ".parquet":
            parquet = _imported("pyarrow.parquet", "arrow", part)
            for batch in parquet.ParquetFile(part).iter_batches():
                yield from (encode(_record(row)) for row in batch.to_pylist())
            return
        case ".ndjson":
            data = part.read_bytes()
        case ".gz":
            data = gzip.decompress(part.read_bytes())
        case ".zst":
            data = _imported("zstandard", "zstd", part).decompress(part.read_bytes())
        case other:
            raise ValueError(f"{other} is neither NDJSON nor Parquet")
    yield from filter(None, data.split(b"\n"))


def _imported(package: str, extra: str, part: Path) -> Any:
    try:
        return import_module(package)
    except ImportError:
        needed = f'pip install "integration-sdk[{extra}]"'
        raise ValueError(f"{part.suffix} files need {needed}") from None


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a *row* of Parquet as the record that it was made of."""
    record = {name: _value(value) for name, value in row.items() if value is not None}
    record.pop("_pulled_at", None)
    for name, value in list(record.items()):
        if name.endswith("__json"):
            record[name.removesuffix("__json")] = decode(record.pop(name).encode())
        elif isinstance(value, str) and value.startswith(("{", "[")):
            with suppress(ValueError):
                record[name] = decode(value.encode())
    return record


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _value(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_value(entry) for entry in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
    return value
