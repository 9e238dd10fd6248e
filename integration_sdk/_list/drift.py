"""Looks for signs that a list changes while it is read; what is reported of a reading.

A record that is inserted, deleted or moved shifts those behind it, and the next page then repeats
some of them, or misses some. What can be seen of that from pages alone:

* ``totalResults`` changes, or is not the number of items that were handed out.
* A key comes again, since its record was pushed behind the reader's place, or moved there.

A record that is missed leaves no sign of its own. If as many come as go, and none of them is met
twice, every sign is missing too: only pages that overlap, as in ``repair``, show that.

Some signs cost almost nothing. The bytes of a page's first item are compared with those of the
last few items of the page before, and keys are read only if one is equal, or if ``totalResults``
has changed. To see every key that comes again, all of them must be read and kept, which takes about
a quarter of the time of decoding the items into dicts (measured) and about 120 bytes an item; so it
is done only for those who want to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import blake2s
from typing import Any, Final, Literal

import msgspec
from attrs import Factory, define, field, frozen
from msgspec import Raw

from integration_sdk._list.page import RawPage
from integration_sdk._records.codec import without_halves

NEAR: Final = 32
"""Number of items at the end of a page that the first item of the next is compared with."""
AROUND: Final = 500
"""Number of items on either side of a page border whose keys are compared in case of doubt."""
MARK_BYTES: Final = 6


@frozen(kw_only=True)
class ListProgress:
    """How far a list has been read.

    Attributes:
        done: Items yielded, including those before the cursor.
        total: Items to read in all: ``totalResults`` of the last answer, or ``limit=`` if that
            is less. None before the first answer.
        rate: Items per second in this run; 0.0 before the first.
        eta: Seconds left at this rate; None if unknown.
    """

    done: int
    total: int | None
    rate: float
    eta: float | None


@frozen(kw_only=True)
class Drift:
    """One sign that the list changed while it was read, or does not add up.

    Attributes:
        kind: "total" (``totalResults`` changed), "duplicate" (items came twice), "gap" (items may
            be missing) or "count" (at the end, more or fewer items than ``totalResults``).
        page: Number of the page where it was noticed, if known.
        detail: A description in words.
    """

    kind: Literal["total", "duplicate", "gap", "count"]
    page: int | None
    detail: str

    def __str__(self) -> str:
        return f"page {self.page}: {self.detail}"


@define(kw_only=True)
class ListReport:
    """Statistics of reading a list.

    Attributes:
        pages: Pages opened.
        items: Items yielded.
        requests: Requests sent, including pages fetched ahead and retries.
        waits: Seconds spent waiting for rate limits and between retries.
        duplicates: Items that came twice.
        invalid: Items that did not fit the model.
        drift: Signs that the list changed while it was read, in order.
    """

    pages: int = 0
    items: int = 0
    requests: int = 0
    waits: float = 0.0
    duplicates: int = 0
    invalid: int = 0
    drift: list[Drift] = Factory(list)


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
    except Exception:  # reported when it is the item's turn
        return bytes(raw)
    return key(item)


def mark(key: Hashable) -> int:
    """Return a hash of *key* for use in a cursor, the same in every process."""
    return int.from_bytes(blake2s(repr(key).encode(), digest_size=MARK_BYTES).digest())


@define
class DriftWatch:
    """Compares each page with the one before, or with all before.

    Attributes:
        keys: Reads the keys of items.
        every_key: Whether to look for items of any page before, and not only of the last one.
        duplicates: Number of items that came twice.
    """

    keys: Keys
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
