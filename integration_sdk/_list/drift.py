"""Looks for signs that a list changes while it is read.

A record that is inserted, deleted or moved shifts those behind it, and the next page then repeats
some of them, or misses some. What can be seen of that from pages alone:

* ``totalResults`` changes, or is not the number of items that were handed out.
* A key comes again, since its record was pushed behind the reader's place, or moved there.
* The order goes backwards: a page begins before the one before it ended.

A record that is missed leaves no sign of its own. If as many come as go, and none of them is met
twice, every sign is missing too: only pages that overlap, as in ``repair``, show that.

Some signs cost almost nothing. The bytes of a page's first item are compared with those of the
last few items of the page before, and keys are read only if one is equal, or if ``totalResults``
has changed. For the order, two items of a page are read. To see every key that comes again, all of
them must be read and kept, which takes about a quarter of the time of decoding the items into
dicts (measured) and about 120 bytes an item; so it is done only for those who want to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2s
from itertools import pairwise
from typing import Any, Final

import msgspec
from attrs import define, field, frozen
from msgspec import Raw

from integration_sdk._list.page import RawPage
from integration_sdk._list.report import Drift
from integration_sdk._records.codec import without_halves

NEAR: Final = 32
"""Number of items at the end of a page that the first item of the next is compared with."""
AROUND: Final = 500
"""Number of items on either side of a page border whose keys are compared in case of doubt."""
MARK_BYTES: Final = 6


def field_reader(name: str) -> Callable[[Raw], Any]:
    """Return a function that reads the field *name* of an item's bytes; None if it has none."""
    if msgspec.json.encode(name) != f'"{name}"'.encode():
        # msgspec has no fields with names that JSON escapes
        return lambda raw: msgspec.json.decode(raw).get(name)
    keyed = msgspec.defstruct(
        "Keyed", [("key", Any, msgspec.field(name=name, default=None))], gc=False
    )
    decode: Callable[[Raw | bytes], Any] = msgspec.json.Decoder(keyed).decode

    def of_raw(raw: Raw) -> Any:
        try:
            return decode(raw).key
        except msgspec.DecodeError:  # half a surrogate pair elsewhere in the item, perhaps
            return decode(without_halves(bytes(raw))).key

    return of_raw


@frozen
class Keys:
    """Reads the keys that identify items.

    Attributes:
        of_raw: Returns the key of an item's bytes; None if it has none.
    """

    of_raw: Callable[[Raw], Any]

    @classmethod
    def of(cls, key: str | Callable[[Any], Any], values: Callable[[Any], Any]) -> Keys:
        """Return a reader of the field *key*, or of the values that a function returns.

        Args:
            key: The name of a field in the service's spelling, or a function of an item.
            values: Decodes an item's bytes, for the function.
        """
        if callable(key):
            return cls(lambda raw: _called(key, values, raw))
        return cls(field_reader(key))

    def read(self, raws: Sequence[Raw]) -> list[Hashable | None]:
        """Return the keys of *raws*; None for an item without a hashable key."""
        return [self._read(raw) for raw in raws]

    def _read(self, raw: Raw) -> Hashable | None:
        try:
            key: Hashable | None = self.of_raw(raw)
            hash(key)
        except Exception:  # a key function may raise anything
            return None
        return key


def _called(key: Callable[[Any], Any], values: Callable[[Any], Any], raw: Raw) -> Any:
    """Return *key* of an item; if the item does not fit its model, return its bytes."""
    try:
        item = values(raw)
    except Exception:  # reported by `Stream.unfit` when it is the item's turn
        return bytes(raw)
    return key(item)


def mark(key: Hashable) -> int:
    """Return a hash of *key* for use in a cursor, the same in every process."""
    return int.from_bytes(blake2s(repr(key).encode(), digest_size=MARK_BYTES).digest())


@frozen
class Order:
    """Reads where items stand in the order of a list.

    Only numbers and moments are compared: how a service sorts text is not known.

    Attributes:
        name: The field of the order, in the service's spelling.
        descending: Whether the largest comes first.
    """

    name: str
    descending: bool
    _value: Callable[[Raw], Any]

    @classmethod
    def by(cls, order_by: str | None) -> Order | None:
        """Return the order that ``order_by`` names; None if it names no field."""
        name = (order_by or "").removeprefix("-")
        # Assumed: a path such as customerRef.id, or anything else, may be an order too.
        plain = name.isidentifier()
        return cls(name, order_by != name, field_reader(name)) if plain else None

    def goes_back(self, one: Raw, other: Raw) -> bool:
        """Whether *other*, which comes later, belongs before *one*, as far as is known."""
        first, second = self._place(one), self._place(other)
        if first is None or second is None or type(first) is not type(second):
            return False
        back: bool = first < second if self.descending else second < first
        return back

    def _place(self, raw: Raw) -> Any:
        """Return the number or moment that *raw* has in the field; None if it has neither."""
        try:
            value = self._value(raw)
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
                return moment.replace(tzinfo=moment.tzinfo or UTC)
            return None if value is None else float(value)
        except (TypeError, ValueError, OverflowError, msgspec.DecodeError):  # no number, no moment
            return None

    def holds(self, raws: Sequence[Raw]) -> bool:
        """Whether *raws* are in this order."""
        return not any(self.goes_back(one, other) for one, other in pairwise(raws))


@define
class DriftWatch:
    """Compares each page with the one before, or with all before.

    Attributes:
        keys: Reads the keys of items.
        order: The order that was requested; None if it is not known, or not kept.
        every_key: Whether to look for items of any page before, and not only of the last one.
        duplicates: Number of items that came twice.
    """

    keys: Keys
    order: Order | None = None
    every_key: bool = False
    duplicates: int = field(init=False, default=0)
    _seen: set[Hashable] = field(init=False, factory=set)

    def compare(self, before: RawPage | None, after: RawPage, total: int | None) -> Iterator[Drift]:
        """Yield signs of drift in *after*.

        Args:
            before: The page before; None for the first.
            after: The page.
            total: ``totalResults`` of an earlier answer, if any.
        """
        moved = list(total_changed(total, after))
        yield from moved
        doubtful = after.doubtful_total
        if doubtful is not None and (before is None or before.doubtful_total is None):
            text = f"totalResults is {doubtful!r}, which says nothing"
            yield Drift(kind="total", page=after.number, detail=text)
        if self.every_key:
            yield from self._seen_before(after)
        if before is None or not after.raws or not before.raws:
            return
        if self.order and self.order.goes_back(before.raws[-1], after.raws[0]):
            yield from self._out_of_order(self.order, before, after)
        near = after.raws[0] in before.raws[-NEAR:] or after.raws[0] == before.raws[0]
        if (moved or near) and not self.every_key:
            old = set(self.keys.read(before.raws[-AROUND:])) - {None}
            twice = sum(key in old for key in self.keys.read(after.raws[:AROUND]))
            yield from self._repeated(twice, after, "were on the page before too")

    def _seen_before(self, after: RawPage) -> Iterator[Drift]:
        keys = [key for key in self.keys.read(after.raws) if key is not None]
        own = set(keys)
        if len(own) < len(keys):  # it does not identify an item
            self.every_key = False
            return
        twice = len(own & self._seen)
        self._seen |= own
        yield from self._repeated(twice, after, "came before")

    def _repeated(self, twice: int, after: RawPage, where: str) -> Iterator[Drift]:
        if twice:
            self.duplicates += twice
            text = f"{twice} of its items {where}"
            yield Drift(kind="duplicate", page=after.number, detail=text)

    def _out_of_order(self, order: Order, before: RawPage, after: RawPage) -> Iterator[Drift]:
        if not (order.holds(before.raws) and order.holds(after.raws)):
            self.order = None  # the service sorts in another way, or not at all
            return
        text = f"it begins before the page before ended, by {order.name}"
        yield Drift(kind="order", page=after.number, detail=text)


def total_changed(total: int | None, page: RawPage) -> Iterator[Drift]:
    """Yield a sign of drift if ``totalResults`` of *page* is known and not the *total* before."""
    if total is not None and page.total is not None and total != page.total:
        text = f"totalResults went from {total} to {page.total}"
        yield Drift(kind="total", page=page.number, detail=text)


def shortfall(done: int, total: int | None, page: int | None) -> Iterator[Drift]:
    """Yield a sign of drift if the list ended after *done* items but *total* says otherwise."""
    if total is not None and done != total:
        text = f"the list ended after {done} items, and totalResults says {total}"
        yield Drift(kind="count", page=page, detail=text)
