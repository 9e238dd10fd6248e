"""A list of records that can be read by page, filtered, ordered and changed.

Generated records are never stored: an unchanged list is just ``range(count)``. Records that are
pushed, updated, inserted or deleted are kept separately. Filtered and ordered reads compute the
matching positions once per query, yielding to other tasks meanwhile. What comes out is the list as
it is at one moment all the same.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any

from integration_sdk.sandbox._books.records import Source
from integration_sdk.sandbox._call import Answer, Call, decode, encode
from integration_sdk.sandbox._calls.paging import page_answer, wanted_page
from integration_sdk.sandbox._calls.query import Chooser

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
        """Return an example of the records in this list, as JSON."""
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
        """Replace the record *identifier* with *record*."""
        number = self._number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        self._written[number] = encode(record)
        self._replaced = True
        self._version += 1

    def edit_at(self, position: int, changes: Mapping[str, Any]) -> None:
        """Change some fields of the record at *position*."""
        number = self._order[position]
        self._written[number] = encode({**decode(self._row(number)), **changes})
        self._replaced = True
        self._version += 1

    def delete(self, identifier: str) -> None:
        """Remove the record *identifier*."""
        number = self._number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        self.delete_at(self._order.index(number))

    def delete_at(self, position: int) -> None:
        """Remove the record at *position*."""
        number = self._loose().pop(position)
        self._written.pop(number, None)
        self._index = {key: kept for key, kept in self._index.items() if kept != number}
        self._version += 1

    async def answer(self, call: Call) -> Answer:
        """Return the requested page, filtered by ``query`` and ordered by ``orderBy``."""
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
        if (self._version, query, order_by) not in self._selections:
            chosen = await self._select(query, order_by)
            self._selections[self._version, query, order_by] = chosen
            while len(self._selections) > SELECTIONS_KEPT:
                self._selections.popitem(last=False)
        self._selections.move_to_end((self._version, query, order_by))
        return self._selections[self._version, query, order_by]

    async def _select(self, query: str | None, order_by: str | None) -> Sequence[int]:
        """Return the matching positions of the list as it is when this returns."""
        # Where the list changes in a pause, a record may have moved to where it was looked for
        # already. So it is read once more then, without pauses.
        for pauses in (True, False):
            version, chooser = self._version, Chooser(query, order_by)
            chooser.check([self.sample()], self._written.values())
            for start in range(0, len(self), SLICE):
                numbers = self._order[start : start + SLICE]
                chooser.look(numbers, self._rows(numbers))
                if pauses:
                    await asyncio.sleep(0)
                if version != self._version:
                    break
            else:
                break
        return array("q", chooser.chosen())
