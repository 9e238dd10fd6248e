"""The filter and ordering of list endpoints.

``query=status=Paid&&{totalAmount>1000||customerRef.companyName~ltd}``, ``orderBy=-issueDate``.

A value is compared as what it meets in the record: numbers as exact decimals, dates as moments,
text without regard to case. ``&&`` binds closer than ``||``; braces group.

Source: the document says a filter exists (Pagination, rule 5) and does not show its syntax.
Assumed: the published service's syntax, case-blind text, null equal to nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from integration_sdk.sandbox._call import bad_request

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
Rowreader = Callable[[bytes], Row]

LONGEST = 2048
_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(>=|<=|!=|=|~|>|<)([^&|{}]*)")
_MARK = re.compile(r"\s*(&&|\|\||\{|\})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ABSENT: Any = object()
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "~": lambda found, wanted: str(wanted) in str(found),
}


class Query:
    """A parsed filter.

    Args:
        text: As sent in ``query=``; bad syntax is a 400 that says where.
    """

    def __init__(self, text: str) -> None:
        if len(text) >= LONGEST:
            raise bad_request("query", f"the query must be shorter than {LONGEST} characters")
        self._text = text
        self._at = 0
        self.names: list[str] = []
        self.matches: Test = self._any_of()
        if self._at < len(text.rstrip()):
            raise self._bad("expected && or ||")

    def check(self, sample: Row) -> None:
        """Refuse names that *sample*, a record of the list, does not have."""
        for name in self.names:
            if getter(name)(sample) is _ABSENT:
                raise bad_request("query", f"{name} is no property of these records", "Query")

    def _any_of(self) -> Test:
        tests = [self._all_of()]
        while self._take("||"):
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def _all_of(self) -> Test:
        tests = [self._term()]
        while self._take("&&"):
            tests.append(self._term())
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _term(self) -> Test:
        if self._take("{"):
            test = self._any_of()
            if not self._take("}"):
                raise self._bad("expected }")
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        match = _COMPARISON.match(self._text, self._at)
        if match is None:
            raise self._bad("expected a comparison such as status=Paid")
        name, sign, text = match[1], match[2], match[3].strip()
        if not text:
            raise self._bad(f"{name}{sign} has no value")
        self._at = match.end()
        self.names.append(name)
        return comparison(name, sign, text)

    def _take(self, mark: str) -> bool:
        match = _MARK.match(self._text, self._at)
        if match is None or match[1] != mark:
            return False
        self._at = match.end()
        return True

    def _bad(self, why: str) -> Exception:
        return bad_request("query", f"the query is not valid at character {self._at}: {why}")


def comparison(name: str, sign: str, text: str) -> Test:
    """The test ``name sign text`` of one record."""
    compare, value = _OPERATORS[sign], getter(name)
    wanted: dict[type, Any] = {}

    def test(row: Row) -> bool:
        found = comparable(name, value(row))
        if found is None:
            return sign == "!="
        if sign == "~":
            return compare(str(found), text.lower())
        kind = type(found)
        if kind not in wanted:
            wanted[kind] = _as(kind, name, text)
        return compare(found, wanted[kind])

    return test


def comparable(name: str, value: Any) -> Any:
    """*value* in a form that compares: bool, Decimal, datetime, lower-case text or None."""
    if isinstance(value, str):
        return (_moment(value) if _DATE.match(value) else None) or value.lower()
    if value is None or value is _ABSENT:
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        return Decimal(value)
    raise bad_request("query", f"{name} is no single value: filter on a property of it", "Query")


def _as(kind: type, name: str, text: str) -> Any:
    try:
        if kind is Decimal:
            return _finite(Decimal(text))
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is datetime:
            return _moment(text) or datetime.fromisoformat(text)
    except (InvalidOperation, KeyError, ValueError):
        raise bad_request("query", f"{text!r} cannot be compared with {name}", "Query") from None
    return text.lower()


def _finite(number: Decimal) -> Decimal:
    if not number.is_finite():
        raise InvalidOperation
    return number


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def getter(name: str) -> Callable[[Row], Any]:
    """Reads the value at a dotted *name*, or the absent mark."""
    first, *others = name.split(".")
    if not others:
        return lambda row: row.get(first, _ABSENT)

    def value(row: Row) -> Any:
        found = row.get(first, _ABSENT)
        for part in others:
            found = found.get(part, _ABSENT) if isinstance(found, dict) else _ABSENT
        return found

    return value


def order_key(name: str) -> Callable[[Row], tuple[int, Any]]:
    """A sort key by the property *name*; records without it come first."""
    ranks, value = {bool: 1, Decimal: 2, datetime: 3, str: 4}, getter(name)

    def key(row: Row) -> tuple[int, Any]:
        found = comparable(name, value(row))
        return (0, 0) if found is None else (ranks[type(found)], found)

    return key


def check_order(name: str, sample: Row) -> None:
    """Refuse to order by what *sample*, a record of the list, does not have."""
    if getter(name)(sample) is _ABSENT:
        raise bad_request("orderBy", f"{name} is no property of these records", "OrderBy")


def reader(names: list[str]) -> Rowreader:
    """A decoder that reads only the top-level properties that *names* speak of."""
    tops = sorted({name.partition(".")[0] for name in names})
    fields = [(f"field_{n}", Any, _ABSENT) for n in range(len(tops))]
    renamed = {f"field_{n}": top for n, top in enumerate(tops)}
    struct = msgspec.defstruct("Row", fields, rename=renamed)
    decode = msgspec.json.Decoder(struct, float_hook=Decimal).decode

    def read(row: bytes) -> Row:
        return dict(zip(tops, msgspec.structs.astuple(decode(row)), strict=True))

    return read
