"""What one streamed record costs, beside the least that it can cost.

The limit is a blocking socket and msgspec: receive a page, split it into its items,
decode each one. Ours does the same through `Client`, with prefetch, in a live event
loop. "aiohttp + msgspec" is what aiohttp alone leaves possible: one page at a time, the
same splitting and decoding, nothing else. "aiohttp + json" is what most people write.

All run in one process, turn by turn, against a server in another; what is shown is this
process' CPU, the median of all rounds. Client and session are open before it begins.

    python -m benchmarks.streaming
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from attrs import frozen

from benchmarks.page_server import PATH, PageServer, page_server, pin_to_core
from integration_sdk import Client

ITEMS = 20_000
ROUNDS = 7
LIMIT = "raw socket + msgspec"


class Envelope(msgspec.Struct):
    """What the plain readers need of a page."""

    results: list[msgspec.Raw]


@frozen
class Customer:
    """A member of a record."""

    id: str
    company_name: str


@frozen
class Line:
    """A line of a record."""

    description: str
    unit_amount: float
    quantity: float
    total_amount: float


@frozen
class Invoice:
    """A record as an attrs class: snake_case names, nested."""

    id: str
    invoice_number: str
    customer_ref: Customer
    issue_date: str
    due_date: str
    modified_date: str
    source_modified_date: str
    currency: str
    currency_rate: float
    line_items: list[Line]
    sub_total: float
    total_tax_amount: float
    total_amount: float
    amount_due: float
    status: str
    note: str


@frozen
class Exact:
    """The amounts of a record, exact from the digits."""

    id: str
    currency_rate: Decimal
    sub_total: Decimal
    total_tax_amount: Decimal
    total_amount: Decimal
    amount_due: Decimal


@frozen
class Brief:
    """Three fields of a record."""

    id: str
    due_date: str
    amount_due: float


split = msgspec.json.Decoder(Envelope).decode
decode = msgspec.json.Decoder().decode


# Readers: each reads all pages and returns the number of items


def raw_socket(server: PageServer, page_size: int) -> int:
    url, count = urlsplit(server.base_url), 0
    with socket.create_connection((url.hostname, url.port)) as line:
        for number in range(1, ITEMS // page_size + 1):
            for raw in split(_receive(line, _target(number, page_size))).results:
                decode(raw)
                count += 1
    return count


def _target(number: int, page_size: int) -> str:
    return f"{PATH}?page={number}&pageSize={page_size}"


def _receive(line: socket.socket, target: str) -> memoryview:
    line.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = line.recv(65536)
    headers, _, start = head.partition(b"\r\n\r\n")
    length = int(headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray(length)
    body[: len(start)] = start
    view, filled = memoryview(body), len(start)
    while filled < length:
        filled += line.recv_into(view[filled:])
    return view


async def ours(client: Client, page_size: int, model: Any = None) -> int:
    count = 0
    async for _ in client.companies.list(page_size=page_size, model=model):
        count += 1
    return count


async def aiohttp_and_msgspec(session: aiohttp.ClientSession, page_size: int) -> int:
    count = 0
    for number in range(1, ITEMS // page_size + 1):
        async with session.get(_target(number, page_size)) as answer:
            page = split(await answer.read())
        for raw in page.results:
            decode(raw)
            count += 1
    return count


async def aiohttp_and_json(session: aiohttp.ClientSession, page_size: int) -> int:
    count, target = 0, _target(1, page_size)
    while True:
        async with session.get(target) as answer:
            page = await answer.json(loads=json.loads)
        for _ in page["results"]:
            count += 1
        if (following := page["_links"].get("next")) is None:
            return count
        target = following["href"]


async def _now(count: int) -> int:
    return count


Reader = Callable[[int], Awaitable[int]]


def readers(
    server: PageServer, client: Client, session: aiohttp.ClientSession
) -> dict[str, Reader]:
    return {
        LIMIT: lambda size: _now(raw_socket(server, size)),
        "integration_sdk, dicts": lambda size: ours(client, size),
        "integration_sdk, attrs": lambda size: ours(client, size, Invoice),
        "integration_sdk, 5 Decimals": lambda size: ours(client, size, Exact),
        "integration_sdk, 3 fields": lambda size: ours(client, size, Brief),
        "aiohttp + msgspec": lambda size: aiohttp_and_msgspec(session, size),
        "aiohttp + json": lambda size: aiohttp_and_json(session, size),
    }


async def measure(all_readers: dict[str, Reader], page_size: int) -> dict[str, float]:
    """Return the median CPU per item, in microseconds, of each reader."""
    micros: dict[str, list[float]] = {name: [] for name in all_readers}
    for _ in range(ROUNDS):
        for name, reader in all_readers.items():
            began = time.process_time()
            count = await reader(page_size)
            micros[name].append((time.process_time() - began) / count * 1e6)
            assert count == ITEMS
    return {name: statistics.median(took) for name, took in micros.items()}


async def compare(server: PageServer) -> None:
    async with (
        Client(api_key="benchmark", base_url=server.base_url) as client,
        aiohttp.ClientSession(server.base_url) as session,
    ):
        all_readers = readers(server, client, session)
        for page_size in (5000, 1000, 100):
            await asyncio.gather(*(reader(page_size) for reader in all_readers.values()))
            before = server.requests
            took = await measure(all_readers, page_size)
            requests = server.requests // (ROUNDS * len(all_readers))
            assert before
            for name, micros in took.items():
                share = took[LIMIT] / micros
                print(f"{page_size:>9}  {name:<30}{micros:>10.2f}{share:>14.2f}{requests:>10}")


def main() -> None:
    """Print the table."""
    pin_to_core(0)
    print(f"CPU per record, {ITEMS:,} records of 2.2 KB, median of {ROUNDS}")
    print(f"{'page size':>9}  {'reader':<30}{'us/record':>10}{'of the limit':>14}{'requests':>10}")
    with page_server(ITEMS) as server:
        asyncio.run(compare(server))


if __name__ == "__main__":
    main()
