"""Pages of bytes from a pager that hands out single items, until the new reader stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec

from integration_sdk._records.codec import parse_utc
from integration_sdk.errors import IntegrationError


class Key(NamedTuple):
    """Id and date of an item."""

    id: str | None
    modified: str | None


class Page(NamedTuple):
    """Items of a page."""

    items: list[bytes]

    @property
    def keys(self) -> list[Key]:
        """What each item says of itself."""
        return [_key(item) for item in self.items]


class _Fields(msgspec.Struct, rename="camel"):
    id: Any = None
    modified_date: Any = None


def _key(item: bytes) -> Key:
    try:
        found = msgspec.json.decode(item, type=_Fields)
        id_ = None if found.id is None else str(found.id)
    except msgspec.MsgspecError:
        return Key(None, None)
    try:
        moment = parse_utc(found.modified_date).isoformat(timespec="microseconds")
    except (TypeError, ValueError):
        return Key(id_, None)
    return Key(id_, moment.replace("+00:00", "Z"))


async def raw_pages(pager: Any) -> AsyncGenerator[Page]:
    """Iterate over the items of a pager by pages."""
    items: list[bytes] = []
    failed: IntegrationError | None = None
    try:
        async for item in pager.raw():
            items.append(item)
            if len(items) == 1000:
                yield Page(items)
                items = []
    except IntegrationError as error:
        failed = error
    yield Page(items)
    if failed is not None:
        raise failed
