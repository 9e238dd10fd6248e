"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a text becomes a number": Fault(
        "_records/building.py",
        "type(value) in {int, Decimal}",
        "type(value) in {int, Decimal, str}",
        "classes",
        "_float",
    ),
    "names that differ only in case are two columns": Fault(
        "_records/columns.py",
        "field.lower() not in taken",
        "field not in taken",
        "columns",
        "names",
    ),
}
