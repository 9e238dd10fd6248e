"""A list of records that is read, filtered, ordered and changed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from itertools import chain
from typing import Any, TypeVar

from attrs import frozen

from integration_sdk.sandbox._call import Answer, Call, decode, encode
from integration_sdk.sandbox._lists import Search, Values, page_answer, wanted_page

SLICE, SELECTIONS_KEPT = 2_000, 4
T = TypeVar("T")


@frozen
class Source:
    """Records 0 to count - 1 of one kind.

    Args:
        rows: Returns those from one number up to another, as JSON.
        number: Returns the number behind an identifier; None, or one beyond, for an unknown one.
    """

    count: int
    rows: Callable[[int, int], Sequence[bytes]]
    number: Callable[[str], int | None]


def stored(rows: Sequence[bytes]) -> Source:
    numbers: dict[str, int] = {}

    def number(identifier: str) -> int | None:
        if not numbers:
            numbers.update({str(decode(row).get("id")): n for n, row in enumerate(rows)})
        return numbers.get(identifier)

    return Source(len(rows), lambda start, stop: rows[start:stop], number)


class DataSet:
    """The records of one kind in one company's books, in the service's order.

    Records that are pushed, updated, inserted or deleted are kept beside those of the source. What
    a filtered or ordered read has found is kept for its next pages.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._order: range | MutableSequence[int] = range(source.count)
        self._written: dict[int, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._next, self._version, self._is_edited = source.count, 0, False
        self._selections: dict[tuple[object, ...], Sequence[int]] = {}
        self._known: tuple[object, list[Values], list[type | None]] | None = None

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
        number = self.number(identifier)
        return None if number is None else self._rows([number])[0]

    def number(self, identifier: str) -> int | None:
        """The number of the record *identifier*, which it keeps; None if there is none."""
        number = self._numbers.get(identifier, self._source.number(identifier))
        return number if number is not None and number in self._order else None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add *record* at the end."""
        self.insert(len(self), record)

    def insert(self, position: int, record: Mapping[str, Any]) -> None:
        """Add *record* before the one at *position*."""
        number = self._next
        self._next += 1
        self._numbers[str(record.get("id"))] = number
        if isinstance(self._order, range) and position == len(self) == number:
            self._order = range(number + 1)
        else:
            self._loose().insert(position, number)
        self._write(number, record)

    def replace(self, identifier: str, record: Mapping[str, Any]) -> None:
        """Replace the record *identifier* with *record*."""
        self._write(self._existing(identifier), record)

    def delete(self, identifier: str) -> None:
        """Remove the record *identifier*."""
        self._loose().remove(self._existing(identifier))
        self._version += 1

    def _write(self, number: int, record: Mapping[str, Any]) -> None:
        self._written[number] = encode(record)
        self._is_edited |= number < self._source.count
        self._version += 1

    def _loose(self) -> MutableSequence[int]:
        if isinstance(self._order, range):
            self._order = array("q", self._order)
        return self._order

    def _existing(self, identifier: str) -> int:
        number = self.number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        return number

    def _rows(self, numbers: Sequence[int]) -> Sequence[bytes]:
        rows, count = self._source.rows, self._source.count
        if isinstance(numbers, range) and numbers.stop <= count and not self._is_edited:
            return rows(numbers.start, numbers.stop)
        return [self._written.get(number) or rows(number, number + 1)[0] for number in numbers]

    def answer(self, call: Call, *, ordered: Collection[str | None] = ()) -> Answer:
        """Return the requested page, filtered and ordered.

        *ordered* are the values of ``orderBy`` by which the records are already ordered.
        """
        query, order_by = call.param("query"), call.param("orderBy")
        if order_by in ordered:
            order_by = None
        chosen: Sequence[int] = self._order
        if query or order_by:
            key = self._version, query, order_by
            if key not in self._selections:
                self._selections[key] = self._selected(Search(query, order_by))
                if len(self._selections) > SELECTIONS_KEPT:
                    del self._selections[next(iter(self._selections))]
            chosen = self._selections[key]
        number, size = wanted_page(call)
        rows = self._rows(chosen[(number - 1) * size : number * size])
        return page_answer(call, number, size, len(chosen), rows)

    def _selected(self, search: Search) -> Sequence[int]:
        # `changed_since` asks for each page with another query, for the same names.
        order, key = self._order, (self._version, search.names)
        if self._known is None or self._known[0] != key:
            slices = (order[start : start + SLICE] for start in range(0, len(order), SLICE))
            rows = chain.from_iterable(map(self._rows, slices))
            self._known = key, *search.read(rows)
        return array("q", [order[place] for place in search.ordered(*self._known[1:])])


def listed(
    call: Call, items: Sequence[T], write: Callable[[T], bytes], *, ordered: Collection[str] = ()
) -> Answer:
    """Return the requested page of *items*, written by *write*, as `DataSet.answer` does."""
    rows = Source(len(items), lambda *ends: [*map(write, items[slice(*ends)])], lambda _: None)
    return DataSet(rows).answer(call, ordered=ordered)
