"""Reads a page: its envelope at once, and each item when it is handed out.

A page is split into the bytes of its items. So the garbage collector never scans a half-built page,
and an item that does not fit its model affects no other.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from attrs import Factory, field, frozen
from msgspec import Raw

from integration_sdk._http.hints import told_time
from integration_sdk._http.responses import Response
from integration_sdk._records.codec import LATEST, mended, parse_utc, without_halves
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import Links

PIECE: Final = 1 << 20
"""Bytes of a large page that are split at a time; about 10 ms for the smallest items."""
_HEAD: Final = 1 << 16  # bytes, within which the items begin
_MOST: Final = 2**63 - 1
_RESULTS: Final = re.compile(rb'"results"\s*:\s*\[')


class _Envelope(msgspec.Struct, gc=False):
    results: list[Raw]
    page_number: Any = msgspec.field(name="pageNumber", default=None)
    page_size: Any = msgspec.field(name="pageSize", default=None)
    total_results: Any = msgspec.field(name="totalResults", default=None)
    links: dict[str, Any] | None = msgspec.field(name="_links", default=None)


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_read_items: Final = msgspec.json.Decoder(list[Raw]).decode


@frozen(kw_only=True)
class RawPage:
    """One page with its envelope decoded and its items still as bytes.

    Attributes:
        number, size, total: From the envelope; None if missing or no count.
        links: From the envelope.
        raws: The bytes of the items.
        answered_at: When the service answered, by its own clock.
    """

    number: int | None = None
    size: int | None = None
    total: int | None = None
    links: Links = Factory(Links)
    raws: Sequence[Raw] = field(default=(), repr=False)
    answered_at: datetime = LATEST


def read_page(response: Response) -> Generator[None, None, RawPage]:
    """Return the page in *response*; yield between pieces of a large one.

    Raises:
        MalformedResponse: It is not a page envelope.

    Source: "Page envelope (list responses)". Assumed: numbers may come as strings, and a
    totalResults that is no count, such as -1, means "unknown".
    """
    try:
        envelope = yield from _split(response.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedResponse(f"the answer is not a valid page: {error}", status=200) from None
    # Without a Date our own time counts, which at worst reads records again.
    told = told_time(response.headers)
    answered_at = datetime.fromtimestamp(response.received_at if told is None else told, UTC)
    links = {name: _href(link) for name, link in (envelope.links or {}).items()}
    return RawPage(
        number=_count(envelope.page_number),
        size=_count(envelope.page_size),
        total=_count(envelope.total_results),
        links=Links(
            self_=links.get("self"),
            current=links.get("current"),
            next=links.get("next"),
            previous=links.get("previous"),
        ),
        raws=envelope.results,
        answered_at=answered_at,
    )


def _split(body: bytes) -> Generator[None, None, _Envelope]:
    raws: list[Raw] = []
    begin = at = _beginning(body)
    if begin:
        first = body[at : body.find(b":", at) + 1].lstrip()  # objects within items begin otherwise
        # What ends in the middle of an item is not valid JSON; then the rest is split at once.
        while (cut := max(body.rfind(end + first, at, at + PIECE) for end in (b"},", b"}, "))) > 0:
            try:
                raws += _read_items(b"[%b]" % body[at : cut + 1])
            except msgspec.DecodeError:
                break
            at = body.index(b"{", cut)
            yield
        body = body[:begin] + body[at:]
    envelope = _read_whole(body)
    envelope.results[:0] = raws
    return envelope


def _beginning(body: bytes) -> int:
    """Return where the items of a large page begin; 0 for any other."""
    for found in _RESULTS.finditer(body, 0, _HEAD) if len(body) > 4 * PIECE else ():
        with suppress(msgspec.DecodeError):  # of a member of another object
            _read_envelope(body[: found.end()] + b"]}")
            return found.end()
    return 0


def _read_whole(body: bytes) -> _Envelope:
    """Split *body*; half a surrogate pair, which is invalid, affects only its own item."""
    try:
        return _read_envelope(body)
    except msgspec.DecodeError:
        whole = without_halves(body)
        if whole == body:
            raise
    envelope, end = _read_envelope(whole), 0
    for index, raw in enumerate(envelope.results):
        begin = whole.index(bytes(raw), end)
        end = begin + len(bytes(raw))
        envelope.results[index] = Raw(body[begin:end])
    return envelope


def _count(value: object) -> int | None:
    """Return *value*, which may be a text, as a whole number; None if it is no count."""
    try:
        number = int(value)  # type: ignore[call-overload]  # what it refuses is no count
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= _MOST and not isinstance(value, bool) else None


def _href(link: object) -> str | None:
    href = link.get("href") if isinstance(link, dict) else None
    return href if isinstance(href, str) and href else None


# What identifies a record


class Key(NamedTuple):
    """What a record says of itself.

    Attributes:
        id: As text; None if it has none.
        modified: When it was changed: UTC with microseconds, a text that sorts as moments do;
            None if it does not say.
    """

    id: str | None = None
    modified: str | None = None


def read_keys(raws: Sequence[Raw | bytes], modified: str) -> list[Key]:
    """Return the keys of records whose field *modified* says when they were changed."""
    read = _key_reader(modified)
    return [_key(read, raw) for raw in raws]


@cache
def _key_reader(modified: str) -> Any:
    fields = [("id", Any, None), ("modified", Any, msgspec.field(name=modified, default=None))]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", fields, gc=False)).decode


def _key(read: Any, raw: Raw | bytes) -> Key:
    try:
        found = read(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            found = read(mended(bytes(raw)))
        except msgspec.MsgspecError:  # not an object
            return Key()
    identity = str(found.id) if isinstance(found.id, str | int) else None
    try:
        return Key(identity, write_moment(parse_utc(found.modified)))
    except (TypeError, ValueError):
        return Key(identity)


def write_moment(moment: datetime) -> str:
    """Return *moment*, which is in UTC, as a text that sorts as moments do."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
