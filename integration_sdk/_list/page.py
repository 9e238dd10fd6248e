"""Decodes a page: its envelope at once, each item when it is handed out.

A page is first split into the bytes of its items. So decoding a page never blocks the event loop,
the garbage collector never scans a half-built page, and an item that does not fit its model
affects no other. (Decoding a page as a whole would save the split, about a seventh of the time,
but with more than some 20 records a page it loses more than that to the collector and the CPU
caches: measured.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import length_hint
from typing import Any, Final

import msgspec
from attrs import Factory, define, field, frozen
from msgspec import Raw

from integration_sdk._http.requests import Request
from integration_sdk._records.codec import without_halves
from integration_sdk._records.pydantic_models import Reason, is_pydantic, reason
from integration_sdk._records.reading import pydantic_reader, shape_of
from integration_sdk.errors import InvalidItem, MalformedResponse
from integration_sdk.models import Links

Decode = Callable[[bytes], Any]
Number = int | str | float | None
MOST: Final = 2**63 - 1
"""The largest count. There is no share of larger ones, nor a cursor with them."""
_NO_END: Final = b"9999-12-31T23:59:59.9999999"
"""The last moment in .NET. Msgspec would round it up to the year 10000."""


class Href(msgspec.Struct):
    """One link."""

    href: str | None = None


class LinkNames(msgspec.Struct):
    """The links of a page."""

    self: Href | None = None
    current: Href | None = None
    next: Href | None = None
    previous: Href | None = None


class Envelope(msgspec.Struct, gc=False):
    """Source: "Page envelope (list responses)". Assumed: numbers may come as strings.

    What is added here is added to `RawPage.facts`, too.
    """

    results: list[Raw]
    page_number: Number = msgspec.field(name="pageNumber", default=None)
    page_size: Number = msgspec.field(name="pageSize", default=None)
    total_results: Number = msgspec.field(name="totalResults", default=None)
    links: LinkNames | None = msgspec.field(name="_links", default=None)


class Documented(Envelope, gc=False, forbid_unknown_fields=True):
    """An envelope with no field that the document does not name."""


_read_page: Final = msgspec.json.Decoder(Envelope).decode
_read_documented: Final = msgspec.json.Decoder(Documented).decode
_read_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ENVELOPE_NAMES: Final = {one.encode_name for one in msgspec.structs.fields(Envelope)}


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

    number: int | None = None
    size: int | None = None
    total: int | None = None
    links: Links = Factory(Links)
    raws: Sequence[Raw] = field(default=(), repr=False)
    doubtful_total: Number = None
    extra: Mapping[str, Any] = Factory(dict)

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self.raws)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a `Page`, apart from its results."""
        return {
            "page_number": self.number or 0,
            "page_size": self.size or 0,
            "total_results": self.total or 0,
            "links": self.links,
            "extra": self.extra,
        }


NO_PAGE: Final = RawPage()


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

    def open(self, body: bytes, *, extra: bool = False) -> RawPage:
        """Return the page *body*, with its *extra* fields if wanted.

        Raises:
            MalformedResponse: It is not a page envelope.
        """
        if self.has_model and _NO_END in body:
            body = body.replace(_NO_END, _NO_END[:-1])
        try:
            envelope, others = _split_with_extra(body) if extra else (_split(body), {})
            doubtful = _doubtful(envelope.total_results)
            return RawPage(
                number=_whole_number("pageNumber", envelope.page_number),
                size=_whole_number("pageSize", envelope.page_size),
                total=None if doubtful else _whole_number("totalResults", envelope.total_results),
                doubtful_total=envelope.total_results if doubtful else None,
                links=_links(envelope.links or LinkNames()),
                raws=envelope.results,
                extra=others,
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

    @classmethod
    def of(cls, page: RawPage, reader: ItemReader, skip: int = 0) -> PageItems:
        """Return the items of *page* without the first *skip*."""
        source = iter(page.raws[skip:] if skip else page.raws)
        return cls(page, reader.values(source), source, reader)

    @property
    def left(self) -> int:
        """Number of items not handed out yet."""
        return length_hint(self._source)

    @property
    def taken(self) -> int:
        """Index in the page of the next item."""
        return self.page.count - self.left

    def invalid(self, error: Exception, request: Request) -> InvalidItem:
        """Return the exception to raise after decoding the last item raised *error*."""
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


def _split(body: bytes) -> Envelope:
    """Split *body*; half a surrogate pair, which is invalid, affects only its own item."""
    try:
        return _read_page(body)
    except msgspec.DecodeError:
        mended = without_halves(body)
        if mended == body:
            raise
    envelope, end = _read_page(mended), 0
    for index, raw in enumerate(envelope.results):
        begin = mended.index(bytes(raw), end)
        end = begin + len(bytes(raw))
        envelope.results[index] = Raw(body[begin:end])
    return envelope


def _split_with_extra(body: bytes) -> tuple[Envelope, dict[str, Any]]:
    """Split *body*; only if it has fields that the document does not name, read it once more."""
    try:
        return _read_documented(body), {}
    except msgspec.DecodeError:  # such a field, or half a surrogate pair
        return _split(body), _extra(body)


def _whole_number(name: str, value: Number) -> int | None:
    """Return *value*, which may be a string, as an int; raise ValueError if it is not whole."""
    if value is None:
        return None
    number = int(value)
    is_whole = not isinstance(value, float) or value.is_integer()
    if not (is_whole and 0 <= number <= MOST):
        raise ValueError(f"{name} is {value!r:.80}")
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
