"""Lists: which page is requested, its envelope, the filter and the order.

``query=status=Paid&&{totalAmount>1000||customerRef.companyName~ltd}``, ``orderBy=-issueDate``.

A value is compared by the type it has in the record: numbers as exact decimals, dates as moments,
text ignoring case. ``&&`` binds closer than ``||``; braces group. A sample record of the list
decides which comparisons are valid; a record with a value of another type equals nothing, like
null.

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
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from attrs import frozen

from integration_sdk.sandbox._call import DEEPEST, Answer, Call, bad_request, encode

DEFAULT_PAGE_SIZE = 100
MAXIMUM_PAGE_SIZE = 5000
MAXIMUM_PAGE = 2**31 - 1
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
        chooser = Chooser(query, order_by)
        rows = list(map(write, items))
        if rows:
            chooser.check([rows[0], rare], rows)
        chooser.look(range(len(rows)), chooser.read(rows))
        items = [items[number] for number in chooser.chosen()]
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

    def check(self, sample: Value | None) -> None:
        """Refuse a comparison that the value in a *sample* does not allow."""
        if sample is not None and self.sign != "~" and _READERS[type(sample)](self.text) is None:
            message = f"{self.text!r} cannot be compared with {self.name}"
            raise bad_request("query", message, "Query")


class _Parser:
    """Reads a filter, by recursive descent; bad syntax is a 400 that says where."""

    def __init__(self, text: str) -> None:
        if len(text) >= LONGEST_QUERY:
            message = f"the query must be shorter than {LONGEST_QUERY} characters"
            raise bad_request("query", message)
        self._text = text
        self._at = self._depth = 0
        self.comparisons: list[Comparison] = []
        self.test = self._any_of()
        if self._at < len(text.rstrip()):
            raise self._bad("expected && or ||")

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
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._bad(f"groups are nested more than {DEEPEST} levels deep")
        test = self._any_of()
        if not self._take("}"):
            raise self._bad("expected }")
        self._depth -= 1
        return test

    def _comparison(self) -> Test:
        match = _COMPARISON.match(self._text, self._at)
        if match is None:
            raise self._bad("expected a comparison such as status=Paid")
        name, sign, text = match[1], match[2], match[3].strip()
        if not text:
            raise self._bad(f"{name}{sign} has no value")
        self._at = match.end()
        self.comparisons.append(Comparison(name, sign, text, len(self.comparisons)))
        return self.comparisons[-1].matches

    def _take(self, mark: str) -> bool:
        match = _MARK.match(self._text, self._at)
        if match is None or match[1] != mark:
            return False
        self._at = match.end()
        return True

    def _bad(self, why: str) -> Exception:
        return bad_request("query", f"the query is not valid at character {self._at}: {why}")


class Chooser:
    """Collects the numbers of the records that match a query, and orders them.

    Attributes:
        names: The properties that are asked for: those of the query, then that of the order.
    """

    def __init__(self, query: str | None, order_by: str | None) -> None:
        parser = _Parser(query) if query else None
        self._test = parser.test if parser else None
        self._comparisons = parser.comparisons if parser else []
        self.names = [comparison.name for comparison in self._comparisons]
        self._is_ordered, self._descending = bool(order_by), (order_by or "").startswith("-")
        if order_by:
            self.names.append(order_by.removeprefix("-"))
            if not re.fullmatch(_NAME, self.names[-1]):
                raise bad_request("orderBy", f"{self.names[-1]!r} is no property", "Query")
        self._find = _finder(self.names)
        self._chosen: list[tuple[tuple[int, Any], int]] = []

    def check(self, samples: Iterable[bytes], others: Iterable[bytes]) -> None:
        """Refuse comparisons that *samples* do not allow, and names that no record has."""
        asked = ["query"] * len(self._comparisons) + ["orderBy"] * self._is_ordered
        examples = list(map(self._find, samples))
        for found in examples:
            for item, name, value in zip(asked, self.names, found, strict=True):
                if isinstance(value, dict | list):
                    message = f"{name} is no single value: use a property of it"
                    raise bad_request(item, message, "Query")
            for comparison in self._comparisons:
                comparison.check(_comparable(found[comparison.number]))
        missing = list(range(len(asked)))
        for found in chain(examples, map(self._find, others)):
            missing = [number for number in missing if found[number] is _ABSENT]
            if not missing:
                return
        for number in missing:
            message = f"{self.names[number]} is no property of these records"
            raise bad_request(asked[number], message, "Query")

    def read(self, rows: Iterable[bytes]) -> list[Values]:
        """Return the values of `names` in each row; the part of a search that takes time."""
        return [tuple(map(_comparable, self._find(row))) for row in rows]

    def look(self, numbers: Iterable[int], records: Iterable[Values]) -> None:
        """Examine the *records* that have these *numbers*."""
        for number, values in zip(numbers, records, strict=True):
            if self._test is None or self._test(values):
                self._chosen.append((_rank(values[-1]) if self._is_ordered else (0, 0), number))

    def chosen(self) -> list[int]:
        """Return the numbers of the matching records, in order; those without the value first."""
        if self._is_ordered:
            self._chosen.sort(key=itemgetter(0), reverse=self._descending)
        return [number for _, number in self._chosen]


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ABSENT: Any = object()


def _comparable(value: Any) -> Value | None:
    """Return *value* in a comparable form; None if it has none."""
    if isinstance(value, str):
        return (_moment(value) if _DATE.match(value) else None) or value.lower()
    if isinstance(value, bool | Decimal):
        return value
    return Decimal(value) if isinstance(value, int | float) else None


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
    decode = msgspec.json.Decoder(struct, float_hook=Decimal).decode
    paths = [(tops.index(first), parts) for first, *parts in (name.split(".") for name in names)]

    def find(row: bytes) -> list[Any]:
        values = msgspec.structs.astuple(decode(row))
        return [_inside(values[top], parts) for top, parts in paths]

    return find


def _inside(value: Any, parts: list[str]) -> Any:
    for part in parts:
        value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value
