"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a text becomes a number": Fault(
        "_records/building.py", "type(value) in {int, float, Decimal}",
        "type(value) in {int, float, Decimal, str}", "classes", "_float",
    ),
    "a text becomes a list of its letters": Fault(
        "_records/building.py", "_exactly(wanted, value)", "value", "classes", "_only"
    ),
    "a day loses its time": Fault(
        "_records/building.py", "_DAY.fullmatch", "_DAY.match", "classes", "_day"
    ),
    "NaN is written as null": Fault(
        "_records/codec.py", "not _is_finite(value)", "False", "classes", "_refuse_nan"
    ),
    "what does not fit its column is lost": Fault(
        "_records/columns.py", "any(odd)", "False", "columns", "_table"
    ),
    "digits beyond a column's are cut": Fault(
        "_records/columns.py", "len(fraction) <= 18", "True", "columns", "_plain"
    ),
    "an unknown field of an operation is lost": Fault(
        "_records/shapes.py", "attrs.evolve(built, extra=extra) if extra else built", "built",
        "codec", "_with_extra",
    ),
    "names that differ only in case are two columns": Fault(
        "_records/columns.py", "field.lower() not in taken", "field not in taken", "columns",
        "names",
    ),
}  # fmt: skip
