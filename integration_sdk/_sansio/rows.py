"""What a list of pushes says, read no further than needed.

A page can hold 5,000 operations, of which a poll wants two fields. Only those are decoded;
a row that turns out to be final is decoded in full, from its own bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec
from attrs import frozen

from integration_sdk._sansio.codec import decode_json, read_operation
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import PushOperation


class Row(msgspec.Struct, gc=False):
    """The two fields that a poll looks at."""

    key: str = msgspec.field(name="pushOperationKey")
    status: str | None = None


_NOTHING: Final = msgspec.Raw(b"null")


class _Next(msgspec.Struct):
    next: msgspec.Raw = _NOTHING


class _Envelope(msgspec.Struct):
    results: list[Row]
    links: _Next | None = msgspec.field(name="_links", default=None)
    page_size: int = msgspec.field(name="pageSize", default=0)


class _Raws(msgspec.Struct):
    results: list[msgspec.Raw]


_read_page: Final = msgspec.json.Decoder(_Envelope).decode
_read_raws: Final = msgspec.json.Decoder(_Raws).decode


@frozen
class Rows:
    """One page of a list of pushes.

    Attributes:
        rows: Key and status of each, in the service's order.
        more: Whether there is a next page.
        page_size: As answered, 0 where it was not.
    """

    rows: list[Row]
    more: bool
    page_size: int
    _body: bytes

    def operations(self, indexes: list[int]) -> list[PushOperation | None]:
        """Return these rows in full; None for one that is not as documented."""
        raws = _read_raws(self._body).results
        return [_in_full(bytes(raws[index])) for index in indexes]


def _in_full(raw: bytes) -> PushOperation | None:
    try:
        return read_operation(decode_json(raw))
    except MalformedResponse:
        return None


def read_rows(body: bytes) -> Rows:
    """Return a page of pushes.

    Raises:
        MalformedResponse: It is no page envelope, or an operation has no key.
    """
    try:
        page = _read_page(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedResponse(f"no page of push operations: {error}") from None
    more = page.links is not None and bytes(page.links.next) != b"null"
    return Rows(page.results, more, page.page_size, body)
