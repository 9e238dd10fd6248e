"""Whether the platform's copy of a record agrees with the record we sent.

A push echoes the object as it appears in the platform, with fields that the platform filled in,
so an echo that agrees may hold more than we sent but no other values. Values are compared by
meaning: 10 equals 10.00 (exact decimals, no floats), ``2024-01-31`` equals
``2024-01-31T00:00:00Z`` (a time without a zone is UTC), and a null that we sent is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import Enum
from re import compile as pattern
from typing import Final

import msgspec

decode = msgspec.json.Decoder(float_hook=Decimal).decode
"""Decodes a payload, with exact numbers."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Rounds nothing."""
_A_DATE = pattern(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")


class Match(Enum):
    """How an echo compares with a record."""

    AGREES = "it holds what we sent, at the natural key or everywhere"
    SILENT = "it lacks some of what we sent (platforms drop fields), and contradicts nothing"
    DIFFERS = "it holds another value"


def match_key(value: str, path: str, echo: Mapping[str, object] | None) -> Match:
    """Compare an echo with the *value* (a `leaf`) of a natural key."""
    held = leaf(value_at(echo, path)) if echo else None
    if held is None:
        return Match.SILENT
    return Match.AGREES if as_written(held) == as_written(value) else Match.DIFFERS


def match_record(sent: object, echo: Mapping[str, object] | None) -> Match:
    """Compare an echo with a whole record; one without a single value is never recognised."""
    seen = set[Match]()
    for found in _compared(sent, echo):
        if found is Match.DIFFERS:
            return found
        seen.add(found)
    return Match.AGREES if seen == {Match.AGREES} else Match.SILENT


def _compared(sent: object, echo: object) -> Iterator[Match]:
    """Yield how each value that was sent compares with the echo's at the same place."""
    match sent, echo:
        case None, _:
            return
        case Mapping(), Mapping() | None:
            for name, inner in sent.items():
                yield from _compared(inner, None if echo is None else echo.get(name))
        case list(), list() | tuple() if len(sent) == len(echo):
            for inner, other in zip(sent, echo, strict=True):
                yield from _compared(inner, other)
        case [], None:
            return
        case _, None:
            yield Match.SILENT
        case _:
            same = not isinstance(sent, Mapping | list) and leaf(sent) == leaf(echo)
            yield Match.AGREES if same else Match.DIFFERS


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
            return f"number {Decimal(str(value)).normalize(_EXACT) or 0}"
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
    if kind != "number" or abs(Decimal(text).adjusted()) > 99:  # nobody writes that out
        return spelt
    return f"{Decimal(text):f}"


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


def natural_value(payload: bytes | None, path: str | None) -> str | None:
    """Return the `leaf` of the natural key's value; None if no natural key is declared.

    Raises:
        ValueError: The record has no value there.
    """
    if path is None:
        return None
    value = value_at(decode(payload or b"null"), path)
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or is_blank or isinstance(value, Mapping | list | tuple):
        raise ValueError(
            f"natural_key {path!r} names no single value in the record: "
            "give a field that every record has, or None"
        )
    return leaf(value)
