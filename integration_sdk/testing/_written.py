"""Reads records from what programs write: NDJSON, CSV, Parquet."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

from integration_sdk._checks import needed


def records_in(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, or of all files below a folder, such as that of a pull.

    Raises:
        OSError, ValueError: There is nothing to read, or a file is damaged.
    """
    if path.is_dir():
        below = [one.relative_to(path) for one in path.rglob("*.*")]
        shown = [one for one in below if not any(part.startswith(("_", ".")) for part in one.parts)]
        files = sorted(path / one for one in shown if (path / one).is_file())
        return [record for file in files for record in records_in(file)]
    if path.suffix == ".parquet":
        table = needed("pyarrow.parquet", "arrow", "Parquet").read_table(path)
        return list(table.to_pylist())
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".csv":
        return list(csv.DictReader(text.decode().splitlines()))
    return [json.loads(line) for line in text.splitlines()]
