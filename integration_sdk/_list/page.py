"""Decodes the items of a page, each when it is handed out.

A page is first split into the bytes of its items. So decoding a page never blocks the event loop,
the garbage collector never scans a half-built page, and an item that does not fit its model
affects no other. (Decoding a page as a whole would save the split, about a seventh of the time,
but with more than some 20 records a page it loses more than that to the collector and the CPU
caches: measured.)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import compress, repeat
from operator import length_hint
from typing import Any, Final

import msgspec
from attrs import Factory, define, field, frozen
from msgspec import Raw

from integration_sdk._answer_parts import Links
from integration_sdk._http.requests import Request
from integration_sdk._list.splitting import LinkNames, Number, split
from integration_sdk._records.codec import without_halves
from integration_sdk._records.pydantic_models import Reason, is_pydantic, reason
from integration_sdk._records.reading import pydantic_reader, shape_of
from integration_sdk.errors import InvalidItem, MalformedResponse

Decode = Callable[[bytes], Any]


_NO_LINKS: Final = LinkNames()
_NO_END: Final = b"9999-12-31T23:59:59.9999999"
"""The last moment in .NET. Msgspec would round it up to the year 10000."""
_read_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ENVELOPE_NAMES: Final = frozenset({"results", "pageNumber", "pageSize", "totalResults", "_links"})


@frozen(kw_only=True)
class RawPage:
    """One page with its envelope decoded and its items still as bytes.

    Attributes:
        number, size, total: From the envelope; None if missing.
        doubtful_total: ``totalResults`` as received, if it is not a count.
        links: From the envelope.
        raws: The bytes of the items.
        extra: Envelope fields that the document does not name, if requested.
    """

    number: int | None
    size: int | None
    total: int | None
    links: Links
    raws: Sequence[Raw] = field(repr=False)
    doubtful_total: Number = None
    extra: Mapping[str, Any] = Factory(dict)

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self.raws)


NO_PAGE: Final = RawPage(number=None, size=None, total=None, links=Links(), raws=())


def _reason(error: Exception) -> Reason:
    """Return what msgspec, or the model's own code, found wrong, and where."""
    what, _, where = str(error).rpartition(" - at `")
    return (what, where.rstrip("`")) if what else (str(error), "$")


@frozen
class ItemReader:
    """Decodes pages, and items of one type.

    Attributes:
        decode: Decodes the bytes of an item.
        build: Makes an item from what `decode` returns; None if that is the item.
        has_model: Whether items have typed fields, some of which may be dates.
        reason: Returns what is wrong, and where, from an exception of `decode` or `build`.
    """

    decode: Callable[[Any], Any]
    build: Callable[[Any], Any] | None = None
    has_model: bool = False
    reason: Callable[[Exception], Reason] = _reason

    @classmethod
    def of(
        cls, model: Any = None, decode: Decode | None = None, *, exact: bool = False
    ) -> ItemReader:
        """Return a reader of *model*, or of plain values if it is None.

        Args:
            model: A pydantic model, any class that `shape_of` takes, or `msgspec.Raw`.
            decode: A function that decodes an item's bytes, instead of *model*.
            exact: Whether fractions without an annotation become Decimal.

        Raises:
            ConfigurationError: The model cannot be used.
        """
        if decode is not None:
            return cls(bytes, decode)
        numbers = Decimal if exact else None
        if model is None:
            return cls(msgspec.json.Decoder(float_hook=numbers).decode)
        if model is Raw:
            return cls(Raw.copy)  # a view would keep its whole page in memory
        if is_pydantic(model):
            return cls(bytes, pydantic_reader(model, exact=exact), True, reason)
        shape = shape_of(model)
        return cls(msgspec.json.Decoder(shape.type, float_hook=numbers).decode, shape.build, True)

    def open(
        self, pieces: Sequence[bytes], *, extra: bool = False
    ) -> Generator[None, None, RawPage]:
        """Return the page with the bytes *pieces*; yield after each step of the work.

        Reading *extra* fields decodes the page a second time.

        Raises:
            MalformedResponse: It is not a page envelope.
        """
        mend = _end_in_time if self.has_model else _as_it_is
        try:
            envelope = yield from split(pieces, mend)
            doubtful = _doubtful(envelope.total_results)
            return RawPage(
                number=_whole_number("pageNumber", envelope.page_number),
                size=_whole_number("pageSize", envelope.page_size),
                total=None if doubtful else _whole_number("totalResults", envelope.total_results),
                doubtful_total=envelope.total_results if doubtful else None,
                links=_links(envelope.links or _NO_LINKS),
                raws=envelope.results,
                extra=_extra(b"".join(pieces)) if extra else {},
            )
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise MalformedResponse(
                f"the answer is not a valid page: {error}", status=200
            ) from None

    def value(self, raw: Raw) -> Any:
        """Decode one item."""
        return next(self.values(iter((raw,))))

    def values(self, raws: Iterator[Raw]) -> Iterator[Any]:
        """Return an iterator that decodes *raws* one by one, without a Python frame."""
        items: Iterator[Any] = map(self.decode, raws)
        return items if self.build is None else map(self.build, items)


@define
class PageItems:
    """The items of one page that are still to be handed out, and how many they are.

    Counting costs nothing per item: the iterator over the page knows how many are left.
    """

    page: RawPage
    values: Iterator[Any]
    _source: Iterator[Any]
    _reader: ItemReader
    _to_come: Iterator[bool]
    _unfit: int = field(init=False, default=0)

    @classmethod
    def of(cls, page: RawPage, reader: ItemReader, skip: int = 0) -> PageItems:
        """Return the items of *page* without the first *skip*."""
        source = iter(page.raws[skip:] if skip else page.raws)
        to_come = repeat(True, length_hint(source))
        return cls(page, compress(reader.values(source), to_come), source, reader, to_come)

    @property
    def left(self) -> int:
        """Number of items not handed out yet."""
        return length_hint(self._source)

    @property
    def taken(self) -> int:
        """Index in the page of the next item."""
        return self.page.count - self.left

    @property
    def lost(self) -> bool:
        """Whether an item was taken but not yielded, and not passed to `invalid` either."""
        return length_hint(self._to_come) - self.left > self._unfit

    def invalid(self, error: Exception, request: Request) -> InvalidItem:
        """Return the exception to raise after decoding the last item raised *error*."""
        self._unfit += 1
        index, number = self.taken - 1, self.page.number
        what, path = self._reader.reason(error)
        return InvalidItem(
            f"{request}, page {number}, item {index}: {what} at {path}; "
            "correct the model, or pass on_invalid= to go on without such items",
            page=number,
            index=index,
            item_path=path,
            raw=bytes(self.page.raws[index]),
            **request.facts,
        )


def _end_in_time(json: bytes | bytearray) -> bytes | bytearray:
    return json.replace(_NO_END, _NO_END[:-1]) if _NO_END in json else json


def _as_it_is(json: bytes | bytearray) -> bytes | bytearray:
    return json


def _whole_number(name: str, value: Number) -> int | None:
    """Return *value*, which may be a string, as an int; raise ValueError if it is not whole."""
    if value is None:
        return None
    number = int(value)
    if number < 0 or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{name} is {value!r}")
    return number


def _doubtful(total: Number) -> bool:
    """Whether ``totalResults`` means "unknown". Assumed: -1, or empty text."""
    return total == -1 or (isinstance(total, str) and total.strip() in {"", "-1"})


def _links(names: LinkNames) -> Links:
    return Links(
        self_=names.self.href if names.self else None,
        current=names.current.href if names.current else None,
        next=(names.next.href or None) if names.next else None,
        previous=names.previous.href if names.previous else None,
    )


def _extra(body: bytes) -> dict[str, Any]:
    try:
        members = _read_members(body)
    except msgspec.DecodeError:
        members = _read_members(without_halves(body))
    return {
        name: msgspec.json.decode(raw)
        for name, raw in members.items()
        if name not in _ENVELOPE_NAMES
    }
