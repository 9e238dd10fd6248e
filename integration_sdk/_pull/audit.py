"""Compares what is in a sink with the receipts of its runs and, on request, with the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import msgspec
from attrs import frozen

import integration_sdk
from integration_sdk._pull.receipts import Kept, KeptUnit
from integration_sdk._pull.sink import Found, Sink
from integration_sdk._pull.unit import Sums
from integration_sdk.errors import ApiError, ConfigurationError


@frozen
class Finding:
    """What an audit says of a unit; problem is "" if all is well."""

    company_id: str
    data_type: str
    rows: int
    problem: str = ""


async def audit(sink: Sink, client: integration_sdk.Client | None = None) -> AsyncIterator[Finding]:
    """Yield a finding for each unit that a receipt names, and for each problem one more.

    With *client*, also how many records the service has.

    Raises:
        ConfigurationError: No pull has written there, or none has ended.
    """
    if await sink.open() is None:
        raise ConfigurationError(f"no pull has written to {sink.target}")
    receipts = [msgspec.json.decode(text, type=Kept) for text in await sink.receipts()]
    # Of two runs at once, the one that ended later may have read a unit earlier.
    units = sorted((one for kept in receipts for one in kept.units), key=lambda one: one.held.run)
    latest = {(one.data_type, one.company): one for one in units}
    if not latest:
        raise ConfigurationError(f"no pull into {sink.target} has ended yet")
    for unit in latest.values():
        found = await sink.found(unit.data_type, unit.company, unit.held)
        problems = list(_problems(unit, found))
        if client is not None and not problems:
            problems = [one async for one in _at_service(client, unit, found)]
        yield Finding(unit.company, unit.data_type, found.rows)
        for problem in problems:
            yield Finding(unit.company, unit.data_type, found.rows, problem)


def _problems(unit: KeptUnit, found: Found) -> Iterator[str]:
    if unit.error is not None:
        yield f"is not complete: {unit.error}"
    if found.is_ahead:
        yield "was written to by a run that was interrupted; run the pull again"
        return
    if found.rows != unit.held.rows:
        yield f"has {found.rows:,} rows, and the receipt says {unit.held.rows:,}"
    if found.size is not None and found.size != unit.held.size:
        yield f"has {found.size:,} bytes, and the receipt says {unit.held.size:,}"
    if found.sums is not None:
        for currency, column, here, there in _differences(found.sums, unit.held.sums):
            money = f" in {currency}" if currency else ""
            yield f"has {here} as the sum of {column}{money}, and the receipt says {there}"


def _differences(one: Sums, other: Sums) -> Iterable[tuple[str, str, str, str]]:
    for currency in sorted(one.keys() | other.keys()):
        here, there = one.get(currency, {}), other.get(currency, {})
        for column in sorted(here.keys() | there.keys()):
            if (pair := (here.get(column, "0"), there.get(column, "0")))[0] != pair[1]:
                yield currency, column, *pair


async def _at_service(
    client: integration_sdk.Client, unit: KeptUnit, found: Found
) -> AsyncIterator[str]:
    books: Any = client.company(unit.company).data(unit.data_type)
    try:
        total = (await books.list(page_size=1)).total_results
    except ApiError as error:
        yield f"cannot be compared with the service: {error}"
        return
    if found.ids > total:
        gone = found.ids - total
        yield f"has {gone:,} records that are no longer at the service; --full removes them"
    elif found.ids < total:
        yield f"lacks {total - found.ids:,} records of the service; run the pull again"
