"""Whether the platform's copy of a record agrees with the record we sent.

A push echoes the object as it appears in the platform, with fields the platform filled in,
so the echo may say more than we sent but never something else. Values are compared by
meaning: 10 is 10.00 (exact decimals, no floats), ``2024-01-31`` is ``2024-01-31T00:00:00Z``
(an unqualified time is UTC), and a null we sent says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from re import compile as pattern

import msgspec

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_A_DATE = pattern(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")


def decode(payload: bytes) -> object:
    """Read a payload with its numbers exact."""
    return _decode(payload)


def agrees(sent: object, echo: object) -> bool:
    """Whether every leaf we sent agrees with the echo's leaf in the same place."""
    if sent is None:
        return True
    if isinstance(sent, Mapping):
        inside = echo if isinstance(echo, Mapping) else {}
        return all(agrees(value, inside.get(name)) for name, value in sent.items())
    if isinstance(sent, list | tuple):
        return not sent or _elements_agree(sent, echo)
    return leaf(sent) == leaf(echo)


def _elements_agree(sent: Sequence[object], echo: object) -> bool:
    if not isinstance(echo, list | tuple) or len(echo) != len(sent):
        return False
    return all(map(agrees, sent, echo))


def has_leaves(sent: object) -> bool:
    """Whether there is anything in it that could agree or disagree."""
    return next(_leaves(sent), None) is not None


def _leaves(sent: object) -> Iterator[object]:
    if isinstance(sent, Mapping | list | tuple):
        for value in sent.values() if isinstance(sent, Mapping) else sent:
            yield from _leaves(value)
    elif sent is not None:
        yield sent


def leaf(value: object) -> str | None:
    """Spell a value so that equal meanings are equal strings; None for no value.

    Objects and lists are no leaves and agree with none.
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


def _exact(number: Decimal) -> str:
    """Digits and exponent without trailing zeros: no rounding, whatever the context."""
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
    return f"time {zoned.astimezone(UTC).isoformat()}"


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
    """Spell what the record holds at its natural key; None where none is declared.

    Raises:
        ValueError: The record holds no value there.
    """
    if path is None:
        return None
    value = value_at(decode(payload or b"null"), path)
    if value is None or isinstance(value, Mapping | list | tuple):
        raise ValueError(
            f"The natural key {path!r} names no single value in the record: "
            "give the path of a field that every record has, or none."
        )
    return leaf(value)
