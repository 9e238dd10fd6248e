"""Reads and writes JSON with msgspec, with names, numbers and dates as the service writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from integration_sdk._options_given import Numbers
from integration_sdk._records.writing import decode_exact, to_plain
from integration_sdk.errors import InvalidRecord, MalformedResponse

Json = Any
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
LATEST: Final = datetime.max.replace(tzinfo=UTC)

_decode_any: Final = msgspec.json.Decoder().decode
_SURROGATE: Final = re.compile(
    rb"(?s)(?<!\\)((?:\\\\)*+)\\(?:(u[dD][89abAB]..\\u[dD][c-fC-F]..)|u[dD][89a-fA-F]..)"
)
"""Matches the escape of a surrogate pair (2) or half of one, behind escaped backslashes (1)."""
_UNWRITABLE: Final = (TypeError, ValueError, ArithmeticError, msgspec.MsgspecError)
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
encode_sorted: Final = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
"""Writes plain values, the members of each object in the order of their names."""


def decode_json(body: bytes, *, numbers: Numbers = "float") -> Json:
    """Return the value of a JSON text; *numbers*: How fractions are read.

    Raises:
        MalformedResponse: It is not JSON, or nested too deeply.
    """
    try:
        return (decode_exact if numbers == "decimal" else _decode_any)(body)
    except ArithmeticError:  # of Decimal: an exponent of 19 digits
        raise MalformedResponse("the answer is not valid JSON: Number out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"the answer is not valid JSON: {error}") from None


def without_halves(body: bytes | bytearray) -> bytes:
    """Return *body* with a replacement character for each half of a surrogate pair."""
    if b"\\ud" not in body and b"\\uD" not in body:  # a search among 60 MB of escapes takes 5 s
        return bytes(body)
    return _SURROGATE.sub(lambda found: found[0] if found[2] else found[1] + rb"\ufffd", body)


def mended(body: bytes) -> bytes:
    """Return *body* with U+FFFD for invalid UTF-8 and for each half of a surrogate pair."""
    return without_halves(body.decode(errors="replace").encode())


def encode_value(value: Any) -> bytes:
    """Return *value* as JSON; Decimals become numbers, dates ISO 8601.

    Objects are written with the names that they are read with: ``due_date`` as ``dueDate``.

    Raises:
        InvalidRecord: It holds something that JSON cannot represent.
    """
    try:
        plain = _named(to_plain, value)
        body: bytes = _named(_encode, plain)
        if b"null" in body or b"NaN" in body or b"Infinity" in body:
            _named(_refuse_nan, plain)
    except RecursionError:
        reason = "it is nested too deeply, or contains itself"
        raise InvalidRecord(f"cannot be written as JSON: {reason}") from None
    except _UNWRITABLE as error:
        raise InvalidRecord(f"cannot be written as JSON: {error}") from None
    except Exception as error:  # of the record's own code, such as a property
        raise InvalidRecord(f"cannot be written as JSON: {error!r}") from error
    return body


def _named(write: Callable[[Any], Any], value: Any) -> Any:
    """Return what *write* makes of *value*; its error names the path of what it refuses."""
    try:
        return write(value)
    except _UNWRITABLE as error:
        raise ValueError(f"{error}, at {_culprit(value, '$', write)}") from None


def _culprit(value: Any, path: str, write: Callable[[Any], object]) -> str:
    """Return the path of the first thing in *value* that *write* refuses."""
    for step, member in _members(value):
        try:
            write(member)
        except _UNWRITABLE:
            return _culprit(member, f"{path}{step}", write)
    return path


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f".{name}", member) for name, member in value.items())
    elif isinstance(value, list):
        yield from ((f"[{index}]", member) for index, member in enumerate(value))


def encode_record(record: Any) -> bytes:
    """Return a record as JSON.

    Raises:
        InvalidRecord: It is not an object, or holds something that JSON cannot represent.
    """
    body = encode_value(record)
    if not body.startswith(b"{"):
        raise InvalidRecord(
            f"a record must be an object (a mapping, attrs class, dataclass, pydantic model or "
            f"Struct), not {type(record).__name__}"
        )
    return body


def canonical(body: bytes) -> bytes:
    """Return the JSON text that every order of the members in *body* has in common."""
    return encode_sorted(decode_exact(body))


def _refuse_nan(value: Any) -> None:
    """Raise ValueError for NaN and infinities, which msgspec would write as null."""
    for _, member in _members(value):
        _refuse_nan(member)
    if not _is_finite(value):
        raise ValueError(f"{value} is not a JSON number")


def _is_finite(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite()  # math.isfinite would make 1e400 a float, which is infinite
    return not isinstance(value, float) or math.isfinite(value)


def parse_utc(value: Any, _: Any = datetime) -> datetime:
    """Return an ISO 8601 text as an aware datetime in UTC.

    Assumed: a time without an offset is UTC; fractions beyond microseconds are cut off.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected an ISO 8601 text, got {value!r:.80}")
    return to_utc(datetime.fromisoformat(value))


def to_utc(moment: datetime) -> datetime:
    """Return *moment* in UTC; without an offset it is taken for UTC.

    Platforms write "9999-12-31T23:59:59-05:00" for "no end". In UTC that is out of range, so it
    becomes the last possible moment: an error would lose the whole object for one odd date.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return EARLIEST if moment.year == 1 else LATEST
