"""Lists: which page is requested, its envelope, the filter and the order.

``query=status=Paid&&{totalAmount>1000||customerRef.companyName~ltd}``, ``orderBy=-issueDate``.

A value is compared by the type that the property has in a sample record: numbers as exact decimals,
dates as moments, text ignoring case. ``&&`` binds closer than ``||``; braces group. A record with
a value of another type equals nothing, like null.

Source: "Resources and their fields", Page envelope; "Endpoints", Pagination; "Limits". The document
says that a filter exists (Pagination, rule 5) and does not show its syntax. Assumed: the published
service's syntax, case-blind text, null equal to nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from integration_sdk.sandbox._call import Answer, Call, bad_request, encode

DEFAULT_PAGE_SIZE, MAXIMUM_PAGE_SIZE, MAXIMUM_PAGE = 100, 5000, 2**31 - 1
LONGEST_QUERY = 2048
Value = bool | Decimal | datetime | str
Values = tuple[Value | None, ...]
"""What a record has of the properties that are asked for, in a form that can be compared."""
Test = Callable[[Values], bool]


def wanted_page(call: Call) -> tuple[int, int]:
    """Return the number and the size of the page."""
    number = call.whole("page", MAXIMUM_PAGE, "Paging") or 1
    size = call.whole("pageSize", MAXIMUM_PAGE_SIZE, "Paging") or DEFAULT_PAGE_SIZE
    return number, min(size, call.world.page_size_cap)


def page_answer(call: Call, number: int, size: int, total: int, rows: Iterable[bytes]) -> Answer:
    envelope = b'{"results":[%b],"pageNumber":%d,"pageSize":%d,"totalResults":%d,"_links":%b}'
    links = {"self": call.path, "current": _href(call, number, size)}
    if number * size < total:
        links["next"] = _href(call, number + 1, size)
    if number > 1:
        links["previous"] = _href(call, number - 1, size)
    written = encode({name: {"href": href} for name, href in links.items()})
    return Answer(200, envelope % (b",".join(rows), number, size, total, written))


def _href(call: Call, number: int, size: int) -> str:
    ours = {"page": str(number), "pageSize": str(size)}
    given = {name: ours.get(name, value) for name, value in call.params}
    pairs = (f"{_quoted(name)}={_quoted(value)}" for name, value in (given | ours).items())
    return f"{call.path}?{'&'.join(pairs)}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return quote(text, safe="")


_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_OPERAND = re.compile(rf"\s*(?:(\{{)|({_NAME})\s*(>=|<=|!=|=|~|>|<)\s*([^&|{{}}]*[^&|{{}}\s]))\s*")
_BEHIND = re.compile(r"\s*(&&|\|\||\})\s*")
_PYTHON = {"&&": " and ", "||": " or ", "}": ")", "{": "("}
_COMPARISONS = (operator.eq, operator.ne, operator.gt, operator.lt, operator.ge, operator.le)
_OPERATORS = dict(zip(("=", "!=", ">", "<", ">=", "<="), _COMPARISONS, strict=True))


def _parsed(text: str) -> tuple[list[tuple[str, str, str]], str]:
    """Return the comparisons of a filter, and how it joins their results, as Python.

    Bad syntax is a 400 that says where.
    """
    if len(text) >= LONGEST_QUERY:
        raise bad_request("query", f"the query must be below {LONGEST_QUERY} characters")
    found: list[tuple[str, str, str]] = []
    python, at, open_groups, behind = "", 0, 0, False
    while at < len(text) or not behind:
        match = (_BEHIND if behind else _OPERAND).match(text, at)
        mark = match and match[1]
        open_groups += {"{": 1, "}": -1}.get(mark or "", 0)
        if match is None or open_groups < 0:
            expected = "&&, || or }" if behind else "a comparison such as status=Paid"
            why = f"the query is not valid at character {at}: expected {expected}"
            raise bad_request("query", why)
        python += f"tests[{len(found)}](values)" if mark is None else _PYTHON[mark]
        if mark is None:
            found.append((match[2], match[3], match[4]))
        at, behind = match.end(), mark in {None, "}"}
    return found, python


def _test(number: int, name: str, sign: str, text: str, kind: type) -> Test:
    """Return whether the value at *number*, of this *kind* or None, matches."""
    if sign == "~":
        return lambda values: values[number] is not None and text.lower() in str(values[number])
    wanted, compare = _READERS.get(kind, str.lower)(text), _OPERATORS[sign]
    if wanted is None:
        raise bad_request("query", f"{text!r} cannot be compared with {name}", "Query")

    def test(values: Values) -> bool:
        found = values[number]
        return sign == "!=" if found is None else compare(found, wanted)

    return test


class Search:
    """A filter and an order: finds the numbers of the records that match.

    Attributes:
        names: The properties that are asked for: those of the query, then that of the order.
    """

    def __init__(self, query: str | None, order_by: str | None) -> None:
        self._comparisons, python = _parsed(query) if query else ([], "True")
        self._tests: list[Test] = []
        try:
            # It holds nothing but the words above, and Python reads it with the same precedence.
            known = {"tests": self._tests}
            self._test: Test = eval(f"lambda values: {python}", known)  # noqa: S307 - made of parsed tokens
        except (SyntaxError, MemoryError, RecursionError):
            raise bad_request(
                "query", "the query has groups that do not end, or too many"
            ) from None
        self.names = [name for name, _, _ in self._comparisons]
        self._is_ordered, self._descending = bool(order_by), (order_by or "").startswith("-")
        if order_by:
            self.names.append(order_by.removeprefix("-"))
            if not re.fullmatch(_NAME, self.names[-1]):
                raise bad_request("orderBy", f"{self.names[-1]!r} is no property", "Query")

    def read(self, rows: Iterable[bytes]) -> tuple[list[Values], list[type | None]]:
        """Return the values of `names` in each row, and their types; this is what takes time.

        The first record that has a property decides its type; null tells only that it exists.
        """
        found = list(map(_finder(self.names), rows))
        kinds = [_kind(column) for column in zip(*found, strict=True)]
        return [tuple(map(_comparable, values, kinds)) for values in found], kinds

    def ordered(self, records: Sequence[Values], kinds: Sequence[type | None]) -> list[int]:
        """Return the numbers of the *records* that match, in order; without the value, first.

        Refuses names that no record has, and values that cannot be compared with theirs.
        """
        for number, (name, kind) in enumerate(zip(self.names, kinds, strict=False)):
            item = "query" if number < len(self._comparisons) else "orderBy"
            if kind is None:
                raise bad_request(item, f"{name} is no property of these records", "Query")
            if kind is dict:
                message = f"{name} is no single value: use a property of it"
                raise bad_request(item, message, "Query")
            if item == "query":
                self._tests.append(_test(number, *self._comparisons[number], kind))
        numbers = [number for number, values in enumerate(records) if self._test(values)]
        if self._is_ordered:
            numbers.sort(key=lambda number: _rank(records[number][-1]), reverse=self._descending)
        return numbers


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ABSENT: Any = object()


def _kind(values: Iterable[Any]) -> type | None:
    """Return the type of the first value, ``dict`` for one of several; None if all are absent."""
    kind: type | None = None
    for value in values:
        if value is not _ABSENT:
            kind = dict if isinstance(value, dict | list) else type(_comparable(value))
            if value is not None:
                break
    return kind


def _comparable(value: Any, kind: type | None = None) -> Value | None:
    """Return *value* in a comparable form, of this *kind* if given; None if it has none."""
    found: Value | None = None
    if isinstance(value, str):
        is_date = kind is not str and _DATE.match(value)
        found = (_moment(value) if is_date else None) or value.lower()
    elif isinstance(value, bool | Decimal):
        found = value
    elif isinstance(value, int | float):
        found = Decimal(value)
    return found if kind in {None, type(found)} else None


@lru_cache(maxsize=1024)
def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


@lru_cache(maxsize=4096)
def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READERS: Mapping[type, Callable[[str], Value | None]] = {
    bool: lambda text: {"true": True, "false": False}.get(text.lower()),
    Decimal: _number,
    datetime: _moment,
    str: str.lower,
}


def _rank(value: Value | None) -> tuple[int, Any]:
    return (0, 0) if value is None else (1, value)


def _finder(names: list[str]) -> Callable[[bytes], list[Any]]:
    """Return what finds the values of dotted *names* in a row, decoding no more than they need."""
    tops = sorted({name.partition(".")[0] for name in names})
    fields = [(f"field_{n}", Any, _ABSENT) for n in range(len(tops))]
    renamed = {f"field_{n}": top for n, top in enumerate(tops)}
    struct = msgspec.defstruct("Row", fields, rename=renamed)
    read = msgspec.json.Decoder(struct, float_hook=Decimal).decode
    paths = [(tops.index(first), parts) for first, *parts in (name.split(".") for name in names)]

    def find(row: bytes) -> list[Any]:
        values = msgspec.structs.astuple(read(row))
        return [_inside(values[top], parts) for top, parts in paths]

    return find


def _inside(value: Any, parts: list[str]) -> Any:
    for part in parts:
        value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value
