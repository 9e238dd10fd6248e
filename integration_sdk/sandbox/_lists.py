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
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from attrs import define, field, frozen

from integration_sdk.sandbox._call import DEEPEST, Answer, Call, bad_request, encode

DEFAULT_PAGE_SIZE = 100
MAXIMUM_PAGE_SIZE = 5000
MAXIMUM_PAGE = 2**31 - 1
LONGEST_QUERY = 2048
T = TypeVar("T")
Row = Mapping[str, Any]
Test = Callable[[Row], bool]
Value = bool | Decimal | datetime | str


# ---------------------------------------------------------------------- pages


@frozen
class Page:
    """The page that a call requests."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """Index of its first item."""
        return (self.number - 1) * self.size

    @property
    def stop(self) -> int:
        """Index after its last item."""
        return self.number * self.size


def wanted_page(call: Call) -> Page:
    """Return the page that *call* requests, or 400."""
    number = call.whole("page", MAXIMUM_PAGE, "Paging") or 1
    size = call.whole("pageSize", MAXIMUM_PAGE_SIZE, "Paging") or DEFAULT_PAGE_SIZE
    return Page(number, min(size, call.world.page_size_cap))


def page_answer(call: Call, page: Page, total: int, rows: Iterable[bytes]) -> Answer:
    """Return the page envelope around *rows*, each a JSON item."""
    envelope = b'{"results":[%b],"pageNumber":%d,"pageSize":%d,"totalResults":%d,"_links":%b}'
    links = {"self": call.path, "current": _href(call, page, page.number)}
    if page.stop < total:
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
        chooser.look(range(len(rows)), rows)
        items = [items[number] for number in chooser.chosen()]
    return page_answer(call, page, len(items), map(write, items[page.start : page.stop]))


# ---------------------------------------------------------------------- the filter

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_COMPARISON = re.compile(rf"\s*({_NAME})\s*(>=|<=|!=|=|~|>|<)([^&|{{}}]*)")
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
}


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
        self.comparisons.append(Comparison(name, sign, text))
        return self.comparisons[-1].matches

    def _take(self, mark: str) -> bool:
        match = _MARK.match(self._text, self._at)
        if match is None or match[1] != mark:
            return False
        self._at = match.end()
        return True

    def _bad(self, why: str) -> Exception:
        return bad_request("query", f"the query is not valid at character {self._at}: {why}")


@define
class Comparison:
    """``name sign text``, evaluated on one record after the other."""

    name: str
    sign: str
    text: str
    _value: Callable[[Row], Any] = field(init=False)
    _wanted: dict[type, Value | None] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._value = _getter(self.name)

    def matches(self, row: Row) -> bool:
        """Return whether *row* matches."""
        found = _comparable(self._value(row))
        if found is not None and self.sign == "~":
            return self.text.lower() in str(found)
        wanted = None if found is None else self._as(type(found))
        return self.sign == "!=" if wanted is None else _OPERATORS[self.sign](found, wanted)

    def check(self, sample: Row) -> None:
        """Refuse a comparison that the value in *sample* does not allow."""
        _check_single("query", self.name, sample)
        found = _comparable(self._value(sample))
        if found is not None and self.sign != "~" and self._as(type(found)) is None:
            message = f"{self.text!r} cannot be compared with {self.name}"
            raise bad_request("query", message, "Query")

    def _as(self, kind: type) -> Value | None:
        if kind not in self._wanted:
            self._wanted[kind] = _READERS[kind](self.text)
        return self._wanted[kind]


class Chooser:
    """Collects the numbers of the rows that match a query, and orders them."""

    def __init__(self, query: str | None, order_by: str | None) -> None:
        parser = _Parser(query) if query else None
        self._test = parser.test if parser else None
        self._comparisons = parser.comparisons if parser else []
        self._name = order_by.removeprefix("-") if order_by else None
        if self._name is not None and not re.fullmatch(_NAME, self._name):
            raise bad_request("orderBy", f"{self._name!r} is no property", "Query")
        self._descending = bool(order_by and order_by.startswith("-"))
        self._asked = [("query", comparison.name) for comparison in self._comparisons]
        self._asked += [("orderBy", self._name)] if self._name else []
        self._read = _reader([name for _, name in self._asked])
        self._key = _order_key(self._name) if self._name else None
        self._found: list[int] = []
        self._keys: dict[int, Any] = {}

    def check(self, samples: Collection[bytes], others: Iterable[bytes]) -> None:
        """Refuse comparisons that *samples* do not allow, and names that no row has."""
        for sample in map(self._read, samples):
            for comparison in self._comparisons:
                comparison.check(sample)
            if self._name is not None:
                _check_single("orderBy", self._name, sample)
        missing = self._asked
        for row in map(self._read, chain(samples, others)):
            missing = [(item, name) for item, name in missing if _getter(name)(row) is _ABSENT]
            if not missing:
                return
        for item, name in missing:
            raise bad_request(item, f"{name} is no property of these records", "Query")

    def look(self, numbers: Sequence[int], rows: Sequence[bytes]) -> None:
        """Examine *rows*, which have these *numbers*."""
        for number, row in zip(numbers, rows, strict=True):
            record = self._read(row)
            if self._test is None or self._test(record):
                self._found.append(number)
                if self._key is not None:
                    self._keys[number] = self._key(record)

    def chosen(self) -> list[int]:
        """Return the numbers of the matching rows, in order."""
        if self._key is not None:
            self._found.sort(key=self._keys.__getitem__, reverse=self._descending)
        return self._found


def _check_single(item: str, name: str, sample: Row) -> None:
    """Refuse *name* if *sample* holds more than a single value there."""
    if isinstance(_getter(name)(sample), (dict, list)):
        message = f"{name} is no single value: use a property of it"
        raise bad_request(item, message, "Query")


# ---------------------------------------------------------------------- values


def _comparable(value: Any) -> Value | None:
    """Return *value* in a comparable form; None if it has none."""
    if isinstance(value, str):
        return (_moment(value) if _DATE.match(value) else None) or value.lower()
    if isinstance(value, (bool, Decimal)):
        return value
    return Decimal(value) if isinstance(value, (int, float)) else None


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


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


def _getter(name: str) -> Callable[[Row], Any]:
    """Return a function that reads the value at a dotted *name*, or the absent mark."""
    first, *others = name.split(".")

    def value(row: Row) -> Any:
        found = row.get(first, _ABSENT)
        for part in others:
            found = found.get(part, _ABSENT) if isinstance(found, dict) else _ABSENT
        return found

    return value


def _order_key(name: str) -> Callable[[Row], tuple[int, Any]]:
    """Return a sort key by the property *name*; records without it come first."""
    value = _getter(name)

    def key(row: Row) -> tuple[int, Any]:
        found = _comparable(value(row))
        return (0, 0) if found is None else (_RANKS[type(found)], found)

    return key


def _reader(names: list[str]) -> Callable[[bytes], Row]:
    """Return a decoder of only those top-level properties that *names* need."""
    tops = sorted({name.partition(".")[0] for name in names})
    fields = [(f"field_{n}", Any, _ABSENT) for n in range(len(tops))]
    renamed = {f"field_{n}": top for n, top in enumerate(tops)}
    struct = msgspec.defstruct("Row", fields, rename=renamed)
    decode = msgspec.json.Decoder(struct, float_hook=Decimal).decode

    def read(row: bytes) -> Row:
        return dict(zip(tops, msgspec.structs.astuple(decode(row)), strict=True))

    return read
