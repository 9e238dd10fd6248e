"""Whether the platform's copy of a record agrees with the record we sent.

A push echoes the object as it appears in the platform, with fields that the platform filled in,
so an echo that agrees may hold more than we sent but no other values. Values are compared by
meaning: 10 equals 10.00 (exact decimals, no floats), ``2024-01-31`` equals
``2024-01-31T00:00:00Z`` (a time without a zone is UTC), and a null that we sent is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from re import compile as pattern
from typing import Final, NamedTuple

import msgspec
from attrs import define, field

from integration_sdk._store.row import Row

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
Place = tuple[str | int, ...]
"""The names and indexes that lead to a value."""
AN_OBJECT: Final = "object"
A_LIST: Final = "list of "
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_A_NUMBER = pattern(r"-?\d+(?:e-?\d\d?)?")
"""Of those that anybody writes out."""
_A_DATE = pattern(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")


def decode(payload: bytes) -> object:
    """Decode a payload, with exact numbers."""
    return _decode(payload)


def places(value: object, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield each value of a record as a string, with its place; nulls are left out.

    Objects and lists come before their contents, a list with its length.
    """
    if isinstance(value, Mapping):
        yield place, AN_OBJECT
        for name, inner in value.items():
            yield from places(inner, (*place, name))
    elif isinstance(value, list | tuple):
        yield place, f"{A_LIST}{len(value)}"
        for index, inner in enumerate(value):
            yield from places(inner, (*place, index))
    elif (spelt := leaf(value)) is not None:
        yield place, spelt


def leaf(value: object) -> str | None:
    """Return a string that is the same for values of the same meaning; None for no value.

    Objects and lists are not leaves and agree with none.
    """
    match value:
        case None:
            return None
        case bool():
            return f"bool {value}"
        case int() | float() | Decimal():
            return f"number {_exact(Decimal(str(value)))}"
        case str():
            return _moment(value) or f"text {value}"
        case _:
            return f"no leaf: {type(value).__name__}"


def as_written(spelt: str) -> str:
    """Return what is left of a `leaf` when a platform writes it down as a natural key.

    Platforms turn numbers into text, trim it, and change its case; nothing else may differ.
    """
    kind, _, text = spelt.partition(" ")
    if kind == "text":
        return " ".join(text.split()).casefold()
    if kind != "number" or not _A_NUMBER.fullmatch(text):
        return spelt
    return f"{Decimal(text):f}"


def _exact(number: Decimal) -> str:
    """Return digits and exponent without trailing zeros; never rounds, whatever the context."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return str(number)
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    if not significant:
        return "0"
    return f"{'-' * sign}{significant}e{exponent + len(text) - len(significant)}"


def _moment(text: str) -> str | None:
    if not _A_DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return f"time {zoned.astimezone(UTC).isoformat()}"
    except OverflowError:  # no day of UTC, as in 9999-12-31T23:59:59-05:00
        return f"time {zoned - _EPOCH}"


def value_at(record: object, path: str) -> object:
    """Follow a dotted *path* (``supplier.id``, ``lines.0.id``); None where it leads nowhere."""
    for name in path.split("."):
        if isinstance(record, Mapping):
            record = record.get(name)
        elif isinstance(record, list | tuple) and name.isdecimal() and int(name) < len(record):
            record = record[int(name)]
        else:
            return None
    return record


def says_other(sent: Mapping[str, object], echo: Mapping[str, object]) -> bool:
    """Whether *echo* has values where a record that was sent has some, and not one of them agrees.

    Platforms change single values as they like; all of them differ in another record's echo only.
    """
    told = dict(places(echo))
    pairs = [
        (as_written(value), as_written(told[place]))
        for place, value in places(sent)
        if place in told and not value.startswith((AN_OBJECT, A_LIST))
    ]
    return bool(pairs) and all(ours != theirs for ours, theirs in pairs)


def natural_value(payload: bytes | None, path: str | None) -> str | None:
    """Return the `leaf` of the natural key's value; None if no natural key is declared.

    Raises:
        ValueError: The record has no value there.
    """
    if path is None:
        return None
    value = value_at(decode(payload or b"null"), path)
    if value is None or isinstance(value, Mapping | list | tuple):
        raise ValueError(
            f"natural_key {path!r} names no single value in the record: "
            "give a field that every record has, or None"
        )
    return leaf(value)


_NOTHING: Final = frozenset({AN_OBJECT, f"{A_LIST}0"})
"""Values that an echo may omit: objects, whose contents are compared anyway, and empty lists."""


class Said(NamedTuple):
    """How pushes compare with a row, as two sets; pushes in neither contradict it.

    agreeing: Pushes that hold what we sent, at the natural key or everywhere.
    silent: Pushes that lack some of what we sent (platforms drop fields), without contradiction.
    """

    agreeing: int
    silent: int


@define
class _Column:
    """What pushes hold at one place: the pushes of each value, and those of any value."""

    holding: dict[str, int] = field(factory=dict)
    any: int = 0

    def add(self, value: str, push: int) -> None:
        self.holding[value] = self.holding.get(value, 0) | push
        self.any |= push


_EMPTY = _Column()


@define
class Echoes:
    """The echoes of some pushes; None or empty for a push without an echo yet."""

    _echoes: Sequence[Mapping[str, object] | None]
    _by_key: dict[str, _Column] = field(init=False, factory=dict)
    _by_place: dict[Place, _Column] = field(init=False, factory=dict)

    def compare(self, row: Row) -> Said:
        """Compare the echoes with what we sent: by the natural key, else value by value."""
        if row.natural_key is not None:
            return self._compare_key(row.natural_key, str(row.natural_value))
        return self._compare_values(decode(row.payload) if row.payload else None)

    def _compare_key(self, path: str, value: str) -> Said:
        if path not in self._by_key:
            column = self._by_key[path] = _Column()
            for push, echo in self._told():
                held = leaf(value_at(echo, path))
                if held is not None:
                    column.add(as_written(held), push)
        column = self._by_key[path]
        return Said(column.holding.get(as_written(value), 0), self._all & ~column.any)

    def _compare_values(self, sent: object) -> Said:
        if not self._by_place:
            for push, echo in self._told():
                for place, value in places(echo):
                    self._by_place.setdefault(place, _Column()).add(value, push)
        agreeing = self._by_place.get((), _EMPTY).any
        differing, tells = 0, False
        for place, value in places(sent):
            column = self._by_place.get(place, _EMPTY)
            same = column.holding.get(value, 0)
            differing |= column.any & ~same
            if value not in _NOTHING:
                agreeing &= same
                tells = tells or not value.startswith(A_LIST)
        silent = self._all & ~(agreeing | differing)
        return Said(agreeing, silent) if tells else Said(0, agreeing | silent)

    @property
    def _all(self) -> int:
        return (1 << len(self._echoes)) - 1

    def _told(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        return ((1 << at, echo) for at, echo in enumerate(self._echoes) if echo)
