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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from attrs import define, field, frozen

from integration_sdk.sandbox._call import Answer, Call, bad_request, encode

DEFAULT_PAGE_SIZE, MAXIMUM_PAGE_SIZE, MAXIMUM_PAGE = 100, 5000, 2**31 - 1
LONGEST_QUERY = 2048
T = TypeVar("T")
Value = bool | Decimal | datetime | str
Values = tuple[Value | None, ...]
"""What a record has of the properties that are asked for, in a form that can be compared."""
Test = Callable[[Values], bool]


@frozen
class Page:
    """The page that a call requests."""

    number: int
    size: int

    @property
    def items(self) -> slice:
        """Where its items are in the list."""
        return slice((self.number - 1) * self.size, self.number * self.size)


def wanted_page(call: Call) -> Page:
    """Return the page that *call* requests, or 400."""
    number = call.whole("page", MAXIMUM_PAGE, "Paging") or 1
    size = call.whole("pageSize", MAXIMUM_PAGE_SIZE, "Paging") or DEFAULT_PAGE_SIZE
    return Page(number, min(size, call.world.page_size_cap))


def page_answer(call: Call, page: Page, total: int, rows: Iterable[bytes]) -> Answer:
    """Return the page envelope around *rows*, each a JSON item."""
    envelope = b'{"results":[%b],"pageNumber":%d,"pageSize":%d,"totalResults":%d,"_links":%b}'
    links = {"self": call.path, "current": _href(call, page, page.number)}
    if page.items.stop < total:
        links["next"] = _href(call, page, page.number + 1)
    if page.number > 1:
        links["previous"] = _href(call, page, page.number - 1)
    written = encode({name: {"href": href} for name, href in links.items()})
    return Answer(200, envelope % (b",".join(rows), page.number, page.size, total, written))


def _href(call: Call, page: Page, number: int) -> str:
    ours = {"page": str(number), "pageSize": str(page.size)}
    given = [(name, ours.get(name, value)) for name, value in call.params]
    added = [(name, value) for name, value in ours.items() if call.param(name) is None]
    pairs = [f"{_quoted(name)}={_quoted(value)}" for name, value in given + added]
    return f"{call.path}?{'&'.join(pairs)}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def listed(
    call: Call,
    items: Sequence[T],
    write: Callable[[T], bytes],
    *,
    rare: bytes = b"{}",
    ordered: Collection[str] = (),
) -> Answer:
    """Return the requested page of *items*, filtered, ordered, and written by *write*.

    *rare* is a row of the properties that not every item has, *ordered* the values of ``orderBy``
    by which the items are already ordered.
    """
    page, query, order_by = wanted_page(call), call.param("query"), call.param("orderBy")
    if order_by in ordered:
        order_by = None
    if query or order_by:
        search, rows = Search(query, order_by), list(map(write, items))
        if rows:
            search.check([rows[0], rare, *rows])
        values = search.read(rows)
        items = [items[n] for n in search.ordered(search.matching(values), values)]
    return page_answer(call, page, len(items), map(write, items[page.items]))


_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_COMPARISON = re.compile(rf"\s*({_NAME})\s*(>=|<=|!=|=|~|>|<)([^&|{{}}]*)")
_MARK = re.compile(r"\s*(&&|\|\||\{|\})")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


@frozen
class Comparison:
    """``name sign text``; *number* is the place of its value among those that are read."""

    name: str
    sign: str
    text: str
    number: int

    def matches(self, values: Values) -> bool:
        """Return whether a record with these *values* matches."""
        found = values[self.number]
        if found is not None and self.sign == "~":
            return self.text.lower() in str(found)
        wanted = None if found is None else _READERS[type(found)](self.text)
        return self.sign == "!=" if wanted is None else _OPERATORS[self.sign](found, wanted)


@define
class _Parser:
    """Reads a filter, by recursive descent; bad syntax is a 400 that says where."""

    text: str
    at: int = 0
    comparisons: list[Comparison] = field(factory=list)

    def whole(self) -> Test:
        if len(self.text) >= LONGEST_QUERY:
            raise bad_request("query", f"the query must be below {LONGEST_QUERY} characters")
        try:
            test = self._any_of()
        except RecursionError:
            raise self._bad("groups are nested too deep") from None
        if self.at < len(self.text.rstrip()):
            raise self._bad("expected && or ||")
        return test

    def _any_of(self) -> Test:
        return self._joined("||", self._all_of, any)

    def _all_of(self) -> Test:
        return self._joined("&&", self._term, all)

    def _joined(
        self, mark: str, part: Callable[[], Test], how: Callable[[Iterable[bool]], bool]
    ) -> Test:
        tests = [part()]
        while self._take(mark):
            tests.append(part())
        return tests[0] if len(tests) == 1 else lambda values: how(test(values) for test in tests)

    def _term(self) -> Test:
        if not self._take("{"):
            return self._comparison()
        test = self._any_of()
        if not self._take("}"):
            raise self._bad("expected }")
        return test

    def _comparison(self) -> Test:
        match = _COMPARISON.match(self.text, self.at)
        if match is None:
            raise self._bad("expected a comparison such as status=Paid")
        name, sign, text = match[1], match[2], match[3].strip()
        if not text:
            raise self._bad(f"{name}{sign} has no value")
        self.at = match.end()
        self.comparisons.append(Comparison(name, sign, text, len(self.comparisons)))
        return self.comparisons[-1].matches

    def _take(self, mark: str) -> bool:
        match = _MARK.match(self.text, self.at)
        if match is None or match[1] != mark:
            return False
        self.at = match.end()
        return True

    def _bad(self, why: str) -> Exception:
        return bad_request("query", f"the query is not valid at character {self.at}: {why}")


class Search:
    """A filter and an order: finds the numbers of the records that match.

    Attributes:
        names: The properties that are asked for: those of the query, then that of the order.
    """

    def __init__(self, query: str | None, order_by: str | None) -> None:
        parser = _Parser(query or "")
        self._test = parser.whole() if query else None
        self._comparisons = parser.comparisons
        self.names = [comparison.name for comparison in self._comparisons]
        self._is_ordered, self._descending = bool(order_by), (order_by or "").startswith("-")
        if order_by:
            self.names.append(order_by.removeprefix("-"))
            if not re.fullmatch(_NAME, self.names[-1]):
                raise bad_request("orderBy", f"{self.names[-1]!r} is no property", "Query")
        self._kinds: list[type | None] = [None] * len(self.names)
        self._find = _finder(self.names)

    def check(self, samples: Iterable[bytes]) -> None:
        """Refuse names that no sample has, and values that cannot be compared with theirs.

        The first sample that has a property decides its type.
        """
        missing = set(range(len(self.names)))
        for sample in samples:
            found = self._find(sample)
            for number in sorted(missing):
                if found[number] is not _ABSENT and self._learned(number, found[number]):
                    missing.remove(number)
            if not missing:
                return
        for number in sorted(missing):
            if self._kinds[number] is None:
                message = f"{self.names[number]} is no property of these records"
                raise bad_request(self._asked(number), message, "Query")

    def _learned(self, number: int, value: Any) -> bool:
        """Return whether *value* tells the type of a property; a null says only that it exists."""
        if isinstance(value, dict | list):
            message = f"{self.names[number]} is no single value: use a property of it"
            raise bad_request(self._asked(number), message, "Query")
        known = _comparable(value)
        self._kinds[number] = type(known)
        if known is not None and number < len(self._comparisons):
            one = self._comparisons[number]
            if one.sign != "~" and _READERS[type(known)](one.text) is None:
                message = f"{one.text!r} cannot be compared with {one.name}"
                raise bad_request("query", message, "Query")
        return known is not None

    def _asked(self, number: int) -> str:
        return "query" if number < len(self._comparisons) else "orderBy"

    def read(self, rows: Iterable[bytes]) -> list[Values]:
        """Return the values of `names` in each row; the part of a search that takes time."""
        kinds = self._kinds
        return [tuple(map(_comparable, self._find(row), kinds)) for row in rows]

    def matching(self, records: Sequence[Values], first: int = 0) -> list[int]:
        """Return the numbers of the *records* that match; they are numbered from *first*."""
        if self._test is None:
            return list(range(first, first + len(records)))
        return [number for number, values in enumerate(records, first) if self._test(values)]

    def ordered(self, numbers: list[int], records: Sequence[Values]) -> list[int]:
        """Return *numbers* in the order of their records; those without the value come first."""
        if self._is_ordered:
            numbers.sort(key=lambda number: _rank(records[number][-1]), reverse=self._descending)
        return numbers


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ABSENT: Any = object()


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
    return found if kind in {None, type(None), type(found)} else None


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
_RANKS = {kind: rank for rank, kind in enumerate(_READERS, 1)}


def _rank(value: Value | None) -> tuple[int, Any]:
    return (0, 0) if value is None else (_RANKS[type(value)], value)


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
