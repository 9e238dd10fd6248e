"""Bytes of records become an Arrow table of learned columns, without becoming Python objects.

`pyarrow.json` parses a batch with what `columns` knows, and shows what is new. A batch that it
refuses is looked at in small pieces, and the records of a piece that it refuses one by one: a
field that does not fit goes into its text column, a record that is no good is rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from attrs import Factory, define

from integration_sdk._records.old_columns import (
    FRACTION_DIGITS,
    JSON,
    NO_COLUMNS,
    TIMESTAMP,
    Columns,
    Kind,
    fits,
    has_no_struct,
    learn,
    text_name,
    with_text,
)
from integration_sdk.errors import ConfigurationError

PIECE: Final = 500
SAMPLE: Final = 1_000
_DECIMAL: Final = pa.decimal128(38, FRACTION_DIGITS)
_WIDE: Final = pa.decimal256(76, FRACTION_DIGITS)
"""Numbers are parsed wider than they are kept: decimal128 takes ``1.5E+25`` for another number."""
_UTC: Final = pa.timestamp("us", "UTC")
_NAIVE: Final = pa.timestamp("us")
_IN_UTC: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*Z?$"
_WITH_OFFSET: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*([+-]\d\d:\d\d)$"
_TINY: Final = (re.compile(rb'e-[0-9]{3,}[\s,\]}"]'), re.compile(rb'E-[0-9]{3,}[\s,\]}"]'))
"""Matches the exponent of a number for which Arrow reads beyond a table: it crashes 26.0.1 from
1e-2000000 on. Two, since a search that begins with one letter is ten times as fast."""
_ESCAPED: Final = re.compile(rb"\\u00(?:2[dD]|3[0-9]|[46]5)")
"""Matches what may be part of such a number in a text."""
_MANTISSA: Final = re.compile(rb"(?:^|[^\w.+-]|\\u002[bB])[+-]?[0-9.]+$")
"""Matches what is before the exponent of a number, and not the beginning of a GUID's last part."""
_REFUSED: Final = re.compile(r'["\\\x00-\x1f]')
"""What msgspec does not take in the name of a Struct's field."""
_RECORD: Final = msgspec.json.Decoder(dict[str, Any])
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@define
class Batch:
    """What became of some records.

    Attributes:
        table: Those that could be read, in their order.
        columns: All that they need; more than was known where something was new.
        rejects: The others, with the reasons.
    """

    table: pa.Table
    columns: Columns
    rejects: list[tuple[bytes, str]] = Factory(list)


class _Unfit(Exception):
    """The records do not fit the columns."""


_NO_GOOD: Final = (_Unfit, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError)
"""What a record raises that is no good, or that others do not go together with."""


class _News(Exception):
    """The records need more columns."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = columns


def read(items: Sequence[bytes], columns: Columns) -> Batch:
    """Read *items*. CPU only; the lock of the interpreter is free most of the time."""
    while True:
        try:
            return _read_known(items, columns)
        except _News as news:
            columns = news.columns


def _read_known(items: Sequence[bytes], columns: Columns) -> Batch:
    try:
        return _read_whole(items, columns)
    except _NO_GOOD:
        pieces = [items[start : start + PIECE] for start in range(0, len(items), PIECE)]
        batches = [_read_piece(piece, columns) for piece in pieces]
        rejects = [reject for batch in batches for reject in batch.rejects]
        return Batch(pa.concat_tables([batch.table for batch in batches]), columns, rejects)


def _read_whole(
    items: Sequence[bytes], columns: Columns, parsed: Sequence[bytes] | None = None
) -> Batch:
    """Read *items*, of which *parsed* are the parts that Arrow parses, if not all.

    Raises:
        _Unfit: Some do not fit.
        _News: They need more columns.
    """
    raw = _parse(items if parsed is None else parsed, columns)
    if _has_news(raw.schema, columns):
        for some in (items[:SAMPLE], items):  # all of them cost as much as ten batches
            learned = learn(columns, map(_RECORD.decode, some))
            if learned != columns:
                raise _News(learned)
        raise _Unfit  # an object in a column that cannot hold it
    if not columns.fields:  # a table without columns has no rows
        return _nothing(items)
    return Batch(_build(raw, columns, _texts(items, columns)), columns)


def _nothing(items: Sequence[bytes]) -> Batch:
    return Batch(pa.table({}), NO_COLUMNS, [(item, "it holds no value") for item in items])


def _read_piece(items: Sequence[bytes], columns: Columns) -> Batch:
    try:
        return _read_whole(items, columns, [_without_texts(item, columns) for item in items])
    except _NO_GOOD:
        return _read_singly(items, columns)


def _without_texts(item: bytes, columns: Columns) -> bytes:
    """Return *item* without the fields that are text: Arrow would want one type for each."""
    json.loads(item, object_pairs_hook=_without_doubles)  # which would be gone from a dict
    fields = {
        name: raw
        for name, raw in _FIELDS.decode(item).items()
        if name not in columns.fields or not columns.is_text(name)
    }
    return msgspec.json.encode(fields)


def _read_singly(items: Sequence[bytes], known: Columns, *, each: bool = False) -> Batch:
    """Read *items* one by one: what fits its column, what goes beside it, what is rejected.

    each: Have Arrow look at each alone, since it refuses one of them for a reason of its own.
    """
    columns = known
    good: list[bytes] = []
    parsed: list[bytes] = []
    beside: list[dict[str, str]] = []
    rejects: list[tuple[bytes, str]] = []
    for item in items:
        try:
            values = _strictly_decoded(item)
            columns = learn(columns, [values])
            kept, texts, columns = _shared_out(item, values, columns)
            one = msgspec.json.encode(kept)
            if each:
                _build(_parse([one], columns, fit=True), columns, _texts([item], columns))
        except _NO_GOOD as error:
            rejects.append((item, str(error) or "it does not fit"))
            continue
        good.append(item)
        parsed.append(one)
        beside.append(texts)
    if columns != known:
        raise _News(columns)
    texts_by_field = {
        field: [one.get(field) for one in beside]
        for field in columns.texts
        if not columns.is_text(field)
    }
    texts_by_field |= _texts(good, columns)
    if not columns.fields:
        return _nothing(items)
    try:
        table = _build(_parse(parsed, columns, fit=True), columns, texts_by_field)
        return Batch(table, columns, rejects)
    except _Unfit:
        if each:
            raise
        return _read_singly(items, known, each=True)


def _shared_out(
    item: bytes, values: dict[str, Any], columns: Columns
) -> tuple[dict[str, msgspec.Raw], dict[str, str], Columns]:
    """Return the fields that fit their columns, the texts of the others, and the columns."""
    raws = _FIELDS.decode(item)
    kept: dict[str, msgspec.Raw] = {}
    texts: dict[str, str] = {}
    for field, value in values.items():
        if field not in columns.fields or columns.is_text(field):
            continue
        if fits(columns.fields[field], value):
            kept[field] = raws[field]
        else:
            whole = has_no_struct(value) and isinstance(columns.fields[field], list | dict)
            columns = with_text(columns, field, all_=whole)
            texts[field] = bytes(raws[field]).decode()
    return kept, texts, columns


def _strictly_decoded(item: bytes) -> dict[str, Any]:
    """Return the record *item*; ValueError if it is not one that every reader reads alike."""
    values = json.loads(item, parse_float=Decimal, object_pairs_hook=_without_doubles)
    if not isinstance(values, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - like all that is wrong with it
    json.dumps(values, ensure_ascii=False, default=str).encode()  # half a surrogate pair
    return values


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice")
    return members


# Arrow


def _may_crash(data: bytes) -> bool:
    """Whether there may be a number in *data* that Arrow must not see as one."""
    if _ESCAPED.search(data):
        return True
    ends = (found.start() for tiny in _TINY for found in tiny.finditer(data))
    return any(_MANTISSA.search(data[max(0, end - 80) : end]) for end in ends)


def _parse(items: Sequence[bytes], columns: Columns, *, fit: bool = False) -> pa.Table:
    """Parse *items* with the types that are known; all others are inferred.

    fit: Whether it is known of each value that it fits its column.
    """
    data = b"\n".join(items)
    if not fit and _may_crash(data):
        raise _Unfit
    known = [
        (field, _arrow(kind, _WIDE))
        for field, kind in columns.fields.items()
        if not columns.is_text(field)
    ]
    if not items:
        return pa.schema(known).empty_table()
    try:
        return pj.read_json(
            BytesIO(data),
            # One block: types are inferred for a block, and a record must not straddle two.
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 64),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(known), unexpected_field_behavior="infer"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _Unfit(str(error)) from None


def _arrow(kind: Kind, number: pa.DataType = _DECIMAL) -> pa.DataType:
    match kind:
        case "bool":
            return pa.bool_()
        case "number":
            return number
        case [item]:
            return pa.list_(_arrow(item, number))
        case dict():
            return pa.struct([(name, _arrow(member, number)) for name, member in kind.items()])
    return pa.string()  # moments, too, until they are cast


def _has_news(schema: pa.Schema, columns: Columns) -> bool:
    """Whether *schema* has what *columns* does not know, and that is more than nulls."""
    return any(
        _is_news(field.type, columns.fields.get(field.name))
        for field in schema
        if field.name not in columns.fields or not columns.is_text(field.name)
    )


def _is_news(type_: pa.DataType, kind: Kind | None) -> bool:
    if pa.types.is_null(type_):
        return False
    if pa.types.is_list(type_):
        return _is_news(type_.value_type, kind[0] if isinstance(kind, list) else None)
    if pa.types.is_struct(type_):
        if type_.num_fields == 0:
            return True
        known = kind if isinstance(kind, dict) else {}
        return any(_is_news(field.type, known.get(field.name)) for field in type_)
    return kind is None


def _texts(items: Sequence[bytes], columns: Columns) -> dict[str, list[str | None]]:
    """Return, by field, the JSON texts of the fields that are written as such."""
    fields = tuple(field for field in columns.fields if columns.is_text(field))
    if not fields:
        return {}
    find = _finder(fields)
    texts: list[list[str | None]] = [[] for _ in fields]
    for item in items:
        for column, raw in zip(texts, find(item), strict=True):
            text = bytes(raw)
            column.append(None if text in {b"", b"null"} else text.decode())
    return dict(zip(fields, texts, strict=True))


@lru_cache(maxsize=64)
def _finder(fields: tuple[str, ...]) -> Callable[[bytes], Iterable[msgspec.Raw]]:
    """Return a function that returns the JSON of each of *fields* in a record."""
    nothing = msgspec.Raw()
    if any(map(_REFUSED.search, fields)):

        def find(item: bytes) -> Iterable[msgspec.Raw]:
            found = _FIELDS.decode(item)
            return [found.get(field, nothing) for field in fields]

        return find
    names = {f"f{number}": field for number, field in enumerate(fields)}
    struct = msgspec.defstruct(
        "Fields", [(name, msgspec.Raw, nothing) for name in names], rename=names
    )
    decode = msgspec.json.Decoder(struct).decode
    return lambda item: msgspec.structs.astuple(decode(item))


def _build(raw: pa.Table, columns: Columns, texts: dict[str, list[str | None]]) -> pa.Table:
    """Return the table of all *columns*.

    Raises:
        _Unfit: A text is no moment, or a number is too large.
    """
    built: dict[str, Any] = {}
    for field, kind in columns.fields.items():
        if kind == JSON:
            built[columns.name(field)] = _strings(texts[field], raw.num_rows)
            continue
        type_ = _UTC if kind == TIMESTAMP else _arrow(kind)
        if columns.is_text(field):
            built[field] = pa.nulls(raw.num_rows, type_)
            continue
        try:
            built[field] = _moments(raw[field]) if kind == TIMESTAMP else raw[field].cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _Unfit(str(error)) from None
    for field in columns.texts:
        built[text_name(field)] = _strings(texts.get(field), raw.num_rows)
    return pa.table(built)


def _strings(texts: Iterable[str | None] | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string()) if texts is None else pa.array(texts, pa.string())


def _moments(column: Any) -> Any:
    """Return texts as moments in UTC, cut to microseconds; without an offset they are UTC."""
    if pc.all(pc.match_substring_regex(column, _IN_UTC)).as_py() is not False:
        naive = pc.replace_substring_regex(column, _IN_UTC, r"\1\2")
        return naive.cast(_NAIVE).cast(_UTC)
    here = pc.match_substring_regex(column, _IN_UTC)
    there = pc.match_substring_regex(column, _WITH_OFFSET)
    if pc.all(pc.or_(here, there)).as_py() is False:
        raise _Unfit("a text is no date")
    utc = pc.replace_substring_regex(pc.if_else(here, column, None), _IN_UTC, r"\1\2")
    offset = pc.replace_substring_regex(pc.if_else(there, column, None), _WITH_OFFSET, r"\1\2\3")
    return pc.coalesce(utc.cast(_NAIVE).cast(_UTC), offset.cast(_UTC))


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return *table* with the columns of *schema*, and no others.

    Raises:
        ConfigurationError: A column cannot be cast.
    """
    columns = [
        table[name] if name in table.column_names else pa.nulls(table.num_rows)
        for name in schema.names
    ]
    table = pa.table(columns, names=schema.names)
    if "decimal" in str(schema) and any(map(_has_tiny, table.columns)):
        raise ConfigurationError("the items do not fit the schema: a number is too small")
    try:
        return table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"the items do not fit the schema: {error}") from None


def _has_tiny(column: Any) -> bool:
    """Whether a text in *column* may be a number that would crash Arrow."""
    if pa.types.is_list(column.type):
        return _has_tiny(pc.list_flatten(column))
    if pa.types.is_struct(column.type):
        places = range(column.type.num_fields)
        return any(_has_tiny(pc.struct_field(column, [place])) for place in places)
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r"[eE]-[0-9]{3}")).as_py())


def sums(table: pa.Table) -> dict[str, dict[str, str]]:
    """Return exact sums of the numbers of *table*, by currency ("" without one) and column."""
    numbers = [name for name in table.column_names if table.schema.field(name).type == _DECIMAL]
    if "currency" in table.column_names and pa.types.is_string(table.schema.field("currency").type):
        keys = table["currency"].fill_null("")
    else:
        keys = pa.array([""] * table.num_rows, pa.string())
    # Under names of ours, since Arrow would read a path in ".x".
    plain = [f"n{place}" for place in range(len(numbers))]
    by_currency = pa.table([keys, *map(table.column, numbers)], names=["currency", *plain])
    totals = by_currency.group_by("currency").aggregate([(one, "sum") for one in plain])
    return {
        row["currency"]: {
            name: format(row[f"{one}_sum"].normalize(), "f")
            for name, one in zip(numbers, plain, strict=True)
            if row[f"{one}_sum"] is not None
        }
        for row in totals.to_pylist()
    }
