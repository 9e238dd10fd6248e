"""A list of records that can be read by page, filtered, ordered and changed.

Generated records are never held: an unchanged list is just ``range(count)``. What is pushed,
updated, inserted or deleted is kept beside them. Filtered and ordered reads note the matching
positions once per query, giving way to other tasks while they look.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from attrs import field, frozen

from integration_sdk.sandbox._call import Answer, Call, decode, encode
from integration_sdk.sandbox._paging import page_answer, wanted_page
from integration_sdk.sandbox._query import (
    Query,
    Rowreader,
    check_names,
    check_single,
    order_key,
    reader,
)
from integration_sdk.sandbox._records import Source

SLICE = 2_000
SELECTIONS_KEPT = 4


class DataSet:
    """The records of one kind in one company's books, in the service's order.

    Args:
        source: The generated records that are there from the start.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._order: range | MutableSequence[int] = range(source.count)
        self._written: dict[int, bytes] = {}
        self._index: dict[str, int] = {}
        self._added = 0
        self._replaced = False
        self._version = 0
        self._selections: OrderedDict[tuple[object, ...], Sequence[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), SLICE):
            yield from map(decode, self._rows(self._order[start : start + SLICE]))

    def ids(self) -> list[str]:
        """The identifiers of all records, in order."""
        return [str(record["id"]) for record in self]

    def get(self, identifier: str) -> bytes | None:
        """The record *identifier* as JSON."""
        number = self._number(identifier)
        return None if number is None else self._row(number)

    def sample(self) -> bytes:
        """A record such as there are in this list, as JSON."""
        return self._source.row(0)

    def append(self, record: dict[str, Any]) -> None:
        """Add *record* at the end."""
        self.insert(len(self), record)

    def insert(self, position: int, record: dict[str, Any]) -> None:
        """Add *record* before the one at *position*."""
        number = self._source.count + self._added
        self._added += 1
        self._written[number] = encode(record)
        self._index[str(record.get("id"))] = number
        if isinstance(self._order, range) and position == len(self) == number:
            self._order = range(number + 1)
        else:
            self._loose().insert(position, number)
        self._version += 1

    def replace(self, identifier: str, record: dict[str, Any]) -> None:
        """Put *record* in the place of the record *identifier*."""
        number = self._number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        self._written[number] = encode(record)
        self._replaced = True
        self._version += 1

    def delete(self, identifier: str) -> None:
        """Take the record *identifier* out."""
        number = self._number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        self.delete_at(self._order.index(number))

    def delete_at(self, position: int) -> None:
        """Take the record at *position* out."""
        number = self._loose().pop(position)
        self._written.pop(number, None)
        self._index = {key: kept for key, kept in self._index.items() if kept != number}
        self._version += 1

    async def answer(self, call: Call) -> Answer:
        """The page *call* asks for, filtered by ``query`` and ordered by ``orderBy``."""
        page = wanted_page(call)
        order = await self._selected(call.param("query"), call.param("orderBy"))
        rows = self._rows(order[page.start : page.stop])
        return page_answer(call, page, len(order), rows)

    def _rows(self, numbers: Sequence[int]) -> Sequence[bytes]:
        if isinstance(numbers, range) and not self._replaced and numbers.stop <= self._source.count:
            return self._source.rows(numbers.start, numbers.stop)
        return [self._row(number) for number in numbers]

    def _row(self, number: int) -> bytes:
        return self._written.get(number) or self._source.row(number)

    def _loose(self) -> MutableSequence[int]:
        if isinstance(self._order, range):
            self._order = array("q", self._order)
        return self._order

    def _number(self, identifier: str) -> int | None:
        number = self._index.get(identifier)
        if number is None:
            number = self._source.ids.index(identifier)
            if number is None or number >= self._source.count:
                return None
        return number if number in self._order else None

    async def _selected(self, query: str | None, order_by: str | None) -> Sequence[int]:
        if not query and not order_by:
            return self._order
        key = (self._version, query, order_by)
        if key not in self._selections:
            self._selections[key] = await self._select(query, order_by)
            while len(self._selections) > SELECTIONS_KEPT:
                self._selections.popitem(last=False)
        self._selections.move_to_end(key)
        return self._selections[key]

    async def _select(self, query: str | None, order_by: str | None) -> Sequence[int]:
        order: list[int] | range | MutableSequence[int] = self._order
        chooser = Chooser(query, order_by)
        chooser.check([self.sample()], self._written.values())
        for start in range(0, len(order), SLICE):
            chooser.look(order[start : start + SLICE], self._rows(order[start : start + SLICE]))
            await asyncio.sleep(0)
        return array("q", chooser.chosen())


class Chooser:
    """Looks at rows and keeps the numbers of those that a query wants, in its order."""

    def __init__(self, query: str | None, order_by: str | None) -> None:
        self._query = Query(query) if query else None
        self._name = order_by.removeprefix("-") if order_by else None
        self._descending = bool(order_by and order_by.startswith("-"))
        names = list(self._query.names) if self._query else []
        self._read: Rowreader = reader(names + ([self._name] if self._name else []))
        self._key = order_key(self._name) if self._name else None
        self._found: list[int] = []
        self._keys: dict[int, Any] = {}

    def check(self, samples: Collection[bytes], others: Iterable[bytes]) -> None:
        """Refuse what *samples* cannot be compared with, and names that no row has."""
        for sample in map(self._read, samples):
            if self._query is not None:
                self._query.check(sample)
            if self._name is not None:
                check_single("orderBy", self._name, sample)
        asked = [("query", name) for name in (self._query.names if self._query else ())]
        asked += [("orderBy", self._name)] if self._name else []
        check_names(asked, map(self._read, chain(samples, others)))

    def look(self, numbers: Sequence[int], rows: Sequence[bytes]) -> None:
        """Look at *rows*, known by *numbers*."""
        for number, row in zip(numbers, rows, strict=True):
            record = self._read(row)
            if self._query is None or self._query.matches(record):
                self._found.append(number)
                if self._key is not None:
                    self._keys[number] = self._key(record)

    def chosen(self) -> list[int]:
        """The numbers wanted, in order."""
        if self._key is not None:
            self._found.sort(key=self._keys.__getitem__, reverse=self._descending)
        return self._found


@frozen
class Plain:
    """A property that stands in an item as *attribute*, and how it is written."""

    attribute: str
    write: Callable[[Any], Any] = lambda value: value


@frozen
class Items:
    """*items* that are all at hand, and how each is written as JSON.

    Args:
        plain: Properties that can be compared before an item is written.
        rare: A row of the properties that not every item has.
    """

    items: Sequence[Any]
    write: Callable[[Any], bytes]
    plain: Mapping[str, Plain] = field(factory=dict)
    rare: bytes = field(default=b"{}", kw_only=True)

    def chosen(self, query: str | None, order_by: str | None) -> Sequence[Any]:
        """The items that *query* wants, by *order_by* or else as they are."""
        if not query and not order_by:
            return self.items
        if query and not order_by:
            parsed = Query(query)
            if self.plain.keys() >= set(parsed.names):
                return self._plainly_chosen(parsed)
        chooser, rows = Chooser(query, order_by), [self.write(item) for item in self.items]
        if rows:
            chooser.check([rows[0], self.rare], rows)
        chooser.look(range(len(rows)), rows)
        return [self.items[number] for number in chooser.chosen()]

    def _plainly_chosen(self, query: Query) -> list[Any]:
        asked = [(name, self.plain[name]) for name in dict.fromkeys(query.names)]
        look = attrgetter(*(plain.attribute for _, plain in asked))

        # Thousands of pushes have a few states and data types: each combination is judged once.
        @cache
        def wanted(found: Any) -> bool:
            values = found if len(asked) > 1 else (found,)
            pairs = zip(asked, values, strict=True)
            return query.matches({name: plain.write(value) for (name, plain), value in pairs})

        return [item for item in self.items if wanted(look(item))]


def listed(call: Call, things: Items, *, ordered: Collection[str] = ()) -> Answer:
    """The wanted page of *things*, filtered and ordered.

    *ordered* are the ``orderBy`` that the caller has seen to.
    """
    page, order_by = wanted_page(call), call.param("orderBy")
    found = things.chosen(call.param("query"), None if order_by in ordered else order_by)
    rows = map(things.write, found[page.start : page.stop])
    return page_answer(call, page, len(found), rows)
