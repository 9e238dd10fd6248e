"""Records as an Arrow table of flat columns: one for each top-level field.

A column's kind is learned once, from its first values, and never changes: number, bool, text, time
or json. Only ``id`` is always text, so that rows can be told apart by it. Objects and lists are
JSON text, as the service wrote them. A value that does not fit its column is JSON text in
``<field>__json`` beside it, and so is each value of a field whose name cannot be a column's. So
nothing is lost, whatever a record holds.

This module needs pyarrow, so it is imported late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite, nan
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from integration_sdk._options_given import Numbers
from integration_sdk._records.codec import EARLIEST, LATEST, mended

Kinds = dict[str, str]
"""Kinds by field, in the order in which they were learned."""
_Raws = list[bytes | None]
"""A field's values as JSON, one for each record; None for null and where the field is missing."""
_Column = tuple[pa.Array, list[bool]]
"""A column's values, and which records have a value that does not fit it."""

RESERVED: Final = frozenset({"company", "connection", "account"})
"""Columns that a pull adds: its folders, such as ``company=<id>``, are columns to readers."""
_DECIMAL: Final = pa.decimal128(38, 18)
_MOMENT: Final = pa.timestamp("us", "UTC")
_PLAIN: Final = r"^-?\d{1,20}(\.\d{1,18})?$"
_TIME: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)?$"
_KINDS: Final = {b'"': "text", b"{": "json", b"[": "json", b"t": "bool", b"f": "bool"}
_UNFIT: Final = (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowInvalid)
_read_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_texts: Final = msgspec.json.Decoder(list[str | None]).decode
_read_bools: Final = msgspec.json.Decoder(list[bool | None]).decode


def table(items: Sequence[bytes], kinds: Kinds, numbers: Numbers = "decimal") -> pa.Table:
    """Return *items*, JSON texts of records, as a table with a row for each.

    Numbers are decimal(38, 18), exact, or doubles; times are in UTC, cut to microseconds. Half a
    surrogate pair and invalid UTF-8 become U+FFFD.

    Args:
        items: The records.
        kinds: What is known of the columns; new fields are added to it.
        numbers: "float" gives doubles in place of decimals.
    """
    learned = dict(kinds)
    try:
        built = _table(items, learned, numbers)
    except _UNFIT:
        learned = dict(kinds)
        built = _table([mended(item) for item in items], learned, numbers)
    kinds.update(learned)
    return built


def batch(items: Sequence[bytes], kinds: Kinds, numbers: Numbers) -> pa.RecordBatch:
    """Return *items* as a record batch; see `table`."""
    return table(items, kinds, numbers).combine_chunks().to_batches()[0]


def names(kinds: Kinds) -> dict[str, tuple[str | None, str]]:
    """Return for each field its column, if it may have one, and the column beside it.

    Names that differ only in case are one name to databases.
    """
    taken, found = set(RESERVED), {}
    for field in kinds:
        clean = field.replace("\0", "\ufffd")
        usable = bool(field) and field == clean and not field.lower().endswith("__json")
        own = field if usable and field.lower() not in taken else None
        beside = f"{clean}__json"
        while beside.lower() in taken:
            beside += "__json"
        taken |= {field.lower(), beside.lower()}
        found[field] = own, beside
    return found


def _table(items: Sequence[bytes], kinds: Kinds, numbers: Numbers) -> pa.Table:
    columns = _columns(items)
    for field, raws in columns.items():
        if field not in kinds and (known := [raw for raw in raws if raw is not None]):
            kinds[field] = "id" if field == "id" else _kind(known)
    arrays: dict[str, pa.Array] = {}
    for field, (own, beside) in names(kinds).items():
        raws = columns.get(field) or [None] * len(items)
        kind = "float" if kinds[field] == "number" and numbers == "float" else kinds[field]
        if own is None or kind == "json":
            arrays[own or beside] = _json(raws)
            continue
        arrays[own], odd = _BUILD[kind](raws)
        if any(odd):
            arrays[beside] = _json(
                [raw if out else None for raw, out in zip(raws, odd, strict=True)]
            )
    if not arrays:  # a table without columns would have no rows
        rows = pa.array([{}] * len(items), pa.struct([]))
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])
    return pa.table(arrays)


def _columns(items: Sequence[bytes]) -> dict[str, _Raws]:
    columns: dict[str, _Raws] = {}
    for row, item in enumerate(items):
        # What is no object is kept under a name that no field can have as its column.
        fields = _read_fields(item) if item.lstrip()[:1] == b"{" else {"": item}
        for field, raw in fields.items():
            column = columns.get(field)
            if column is None:
                column = columns[field] = []
            if len(column) < row:
                column.extend([None] * (row - len(column)))
            value = bytes(raw)
            column.append(None if value == b"null" else value)
    for column in columns.values():
        column.extend([None] * (len(items) - len(column)))
    return columns


def _kind(raws: list[bytes]) -> str:
    """Return what most values are, so that an odd first one does not decide for good."""
    kinds = Counter(_KINDS.get(raw[:1], "number") for raw in raws)
    ((kind, _),) = kinds.most_common(1)
    if kind != "text":
        return kind
    quoted = f'^"{_TIME[1:-1]}"$'
    texts = [raw for raw in raws if raw[:1] == b'"']
    are_times = pc.match_substring_regex(_json(texts), quoted)
    return "time" if pc.all(are_times).as_py() else "text"


def _json(raws: Sequence[bytes | None]) -> pa.Array:
    return pa.array(raws, pa.binary()).cast(pa.string())


def _joined(raws: _Raws, odd: list[bool]) -> bytes:
    kept = (b"null" if raw is None or out else raw for raw, out in zip(raws, odd, strict=True))
    return b"[" + b",".join(kept) + b"]"


def _bools(raws: _Raws) -> _Column:
    odd = [raw not in {b"true", b"false", None} for raw in raws]
    return pa.array(_read_bools(_joined(raws, odd)), pa.bool_()), odd


def _texts(raws: _Raws) -> _Column:
    odd = [raw is not None and raw[0] != ord('"') for raw in raws]
    return pa.array(_read_texts(_joined(raws, odd)), pa.string()), odd


def _ids(raws: _Raws) -> _Column:
    return _texts([b'"%b"' % raw if raw and _is_number(raw) else raw for raw in raws])


def _times(raws: _Raws) -> _Column:
    texts, odd = _texts(raws)
    fits = pc.match_substring_regex(texts, _TIME)
    cut = pc.replace_substring_regex(pc.if_else(fits, texts, None), _TIME, r"\1\2\3")
    zoned = pc.match_substring_regex(cut, "(Z|[+-]..:..)$")
    utc = pc.if_else(zoned, cut, pc.binary_join_element_wise(cut, "Z", ""))
    try:
        moments = utc.cast(_MOMENT)
        # Most readers, Python too, have the years 1 to 9999 only.
        inside = pc.and_(pc.greater_equal(moments, EARLIEST), pc.less_equal(moments, LATEST))
        moments = pc.if_else(inside, moments, None)
    except pa.ArrowInvalid:  # a day that no calendar has
        moments = pa.array([_moment(text) for text in utc.to_pylist()], _MOMENT)
    unfit = pc.and_(texts.is_valid(), moments.is_null()).to_pylist()
    return moments, [one or other for one, other in zip(odd, unfit, strict=True)]


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return None


def _decimals(raws: _Raws) -> _Column:
    texts = _json(raws)
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN), True)
    if pc.all(plain).as_py() is not False:
        return texts.cast(_DECIMAL), [False] * len(raws)
    fits = plain.to_pylist()
    spelt = [raw if fit else _plain(raw) for raw, fit in zip(raws, fits, strict=True)]
    odd = [raw is not None and one is None for raw, one in zip(raws, spelt, strict=True)]
    return _json(spelt).cast(_DECIMAL), odd


def _plain(raw: bytes | None) -> bytes | None:
    """Return a number without exponent and idle zeros; None if the column cannot hold it."""
    if raw is None or not _is_number(raw) or len(raw) > 80:
        return None
    try:
        number = Decimal(raw.decode())
    except ArithmeticError:  # an exponent of 19 digits
        return None
    if not number:
        return b"0"
    if not -18 <= number.adjusted() < 20:
        return None
    whole, _, fraction = f"{number:f}".partition(".")
    fraction = fraction.rstrip("0") or "0"
    return f"{whole}.{fraction}".encode() if len(fraction) <= 18 else None


def _floats(raws: _Raws) -> _Column:
    values = [float(raw) if raw and _is_number(raw) else nan for raw in raws]
    odd = [raw is not None and not isfinite(one) for raw, one in zip(raws, values, strict=True)]
    return pa.array([one if isfinite(one) else None for one in values], pa.float64()), odd


def _is_number(raw: bytes) -> bool:
    return raw[:1] == b"-" or raw[:1].isdigit()


_BUILD: Final[dict[str, Callable[[_Raws], _Column]]] = {
    "id": _ids,
    "bool": _bools,
    "text": _texts,
    "time": _times,
    "number": _decimals,
    "float": _floats,
}
