"""Looks for signs that a list changes while it is read.

This costs almost nothing while the list stays the same: the bytes of a page's first item are
compared with those of the last few items of the page before. Keys are read only if one of them is
equal, or if ``totalResults`` has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import blake2s
from typing import Any, Final

import msgspec
from attrs import define, field, frozen
from msgspec import Raw

from integration_sdk._sansio.codec import without_halves
from integration_sdk._sansio.paging.items import RawPage
from integration_sdk._sansio.paging.report import Drift

NEAR: Final = 32
"""Number of items at the end of a page that the first item of the next is compared with."""
AROUND: Final = 500
"""Number of items on either side of a page border whose keys are compared in case of doubt."""
MARK_BYTES: Final = 6


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
        keyed = msgspec.defstruct(
            "Keyed", [("key", Any, msgspec.field(name=key, default=None))], gc=False
        )
        decode: Callable[[Raw | bytes], Any] = msgspec.json.Decoder(keyed).decode

        def of_raw(raw: Raw) -> Any:
            try:
                return decode(raw).key
            except msgspec.DecodeError:  # half a surrogate pair elsewhere in the item, perhaps
                return decode(without_halves(bytes(raw))).key

        return cls(of_raw)

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


@define
class DriftWatch:
    """Compares each page with the one before.

    Attributes:
        keys: Reads the keys of items.
        duplicates: Number of items that came twice.
    """

    keys: Keys
    duplicates: int = field(init=False, default=0)

    def compare(self, before: RawPage | None, after: RawPage, total: int | None) -> Iterator[Drift]:
        """Yield signs of drift in *after*.

        Args:
            before: The page before; None for the first.
            after: The page.
            total: ``totalResults`` of an earlier answer, if any.
        """
        moved = None not in {total, after.total} and total != after.total
        if moved:
            text = f"totalResults went from {total} to {after.total}"
            yield Drift(kind="total", page=after.number, detail=text)
        doubtful = after.doubtful_total
        if doubtful is not None and (before is None or before.doubtful_total is None):
            text = f"totalResults is {doubtful!r}, which says nothing"
            yield Drift(kind="total", page=after.number, detail=text)
        if before is None or not after.raws or not before.raws:
            return
        if moved or after.raws[0] in before.raws[-NEAR:] or after.raws[0] == before.raws[0]:
            yield from self._repeated(before, after)

    def _repeated(self, before: RawPage, after: RawPage) -> Iterator[Drift]:
        old = set(self.keys.read(before.raws[-AROUND:])) - {None}
        twice = sum(key in old for key in self.keys.read(after.raws[:AROUND]))
        if twice:
            self.duplicates += twice
            text = f"{twice} of its items were on the page before too"
            yield Drift(kind="duplicate", page=after.number, detail=text)


def shortfall(done: int, total: int | None, page: int | None) -> Iterator[Drift]:
    """Yield a sign of drift if the list ended after *done* items but *total* says otherwise."""
    if total is not None and done != total:
        text = f"the list ended after {done} items, and totalResults says {total}"
        yield Drift(kind="count", page=page, detail=text)
