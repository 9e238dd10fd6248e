"""Splits the bytes of a page into the bytes of its items, in several steps if it is large.

msgspec splits a page in one call, which takes 10 ms for thousands of items: too long for an event
loop. So a large page, which arrives in pieces, is cut where one item seems to end and the next to
begin. A cut is a guess. If the part before it, in brackets, is a valid array, the guess was right,
since JSON is unambiguous; if not, the page is split in one call after all.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw

from integration_sdk._records.codec import without_halves

Number = int | str | float | None
PIECE: Final = 512 * 1024
"""Minimum number of bytes to split in one step, which takes less than a millisecond."""
NEAR_END: Final = PIECE // 16
"""A cut is first looked for in this many bytes at the end of a piece."""
Mend = Callable[[bytes | bytearray], bytes | bytearray]


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
    """Source: "Page envelope (list responses)". Assumed: numbers may come as strings."""

    results: list[Raw]
    page_number: Number = msgspec.field(name="pageNumber", default=None)
    page_size: Number = msgspec.field(name="pageSize", default=None)
    total_results: Number = msgspec.field(name="totalResults", default=None)
    links: LinkNames | None = msgspec.field(name="_links", default=None)


_read_page: Final = msgspec.json.Decoder(Envelope).decode
_read_items: Final = msgspec.json.Decoder(list[Raw]).decode
_SCALAR: Final = rb'(?:"[^"\\]*"|[-+.\w]+)'
_START: Final = re.compile(
    rb'"results"\s*:\s*\[\s*(?=(\{\s*"\w+"\s*:\s*)' + _SCALAR + rb'(\s*,\s*"\w+"\s*:))'
)
"""Matches the beginning of the items, and the first two names of the first item."""


def split(pieces: Sequence[bytes], mend: Mend) -> Generator[None, None, Envelope]:
    """Return the envelope of a page, with its items as bytes; yield after each step.

    Args:
        pieces: The bytes of the page, in order.
        mend: Applied to all bytes before they are decoded.

    Raises:
        msgspec.DecodeError: It is not a page envelope.
    """
    envelope = None
    if len(pieces) > 1:
        with suppress(msgspec.DecodeError):  # a cut was wrong, or the page is invalid
            envelope = yield from _split_as_received(pieces, mend)
    return envelope or _split_at_once(mend(b"".join(pieces)))


def _split_as_received(
    pieces: Sequence[bytes], mend: Mend
) -> Generator[None, None, Envelope | None]:
    """Return the envelope; None if there is no place to cut."""
    received = iter(pieces)
    buffer = _filled(bytearray(), received)
    start = _START.search(buffer)
    if start is None:
        return None
    first, second = map(re.escape, start.groups())
    next_item = re.compile(rb"\}\s*,\s*(?=" + first + _SCALAR + second + rb")")
    head = bytes(buffer[: start.end()])
    raws = _read_page(head + b"]}").results  # empty; raises if it is not the page's own list
    buffer[: start.end()] = b"["  # in place, without a copy
    while len(buffer := _filled(buffer, received)) > PIECE:
        cut = next_item.search(buffer, len(buffer) - NEAR_END) or _last(next_item.finditer(buffer))
        if cut is None:
            return None
        rest = buffer[cut.end() :]
        buffer[cut.start() + 1 :] = b"]"
        raws += _read_items(mend(buffer))
        yield
        buffer = bytearray(b"[") + rest
    buffer[:1] = head
    envelope = _read_page(mend(buffer))
    envelope.results[:0] = raws
    return envelope


def _last(matches: Iterator[re.Match[bytes]]) -> re.Match[bytes] | None:
    return next(iter(deque(matches, maxlen=1)), None)


def _filled(rest: bytearray, received: Iterator[bytes]) -> bytearray:
    """Return *rest* with pieces of *received* appended until it is longer than `PIECE`."""
    parts, size = list[bytes | bytearray]([rest]), len(rest)
    while size <= PIECE and (piece := next(received, None)) is not None:
        parts.append(piece)
        size += len(piece)
    return bytearray().join(parts) if parts[1:] else rest


def _split_at_once(body: bytes | bytearray) -> Envelope:
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
