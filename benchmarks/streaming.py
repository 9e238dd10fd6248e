"""What does one streamed record cost, beside the least that it can cost?

The limit is a blocking socket and msgspec: receive a page, split it into its items,
decode each one. Ours does the same through the client, with prefetch, in a live event
loop. Plain aiohttp with json is what most people write. All run in one process, turn
by turn, against a server in another; seconds are this process' CPU.

    python -m benchmarks.streaming
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from benchmarks.page_server import PATH, PageServer, page_server, pin_to_core
from integration_sdk._session import CallOptions, Session
from integration_sdk._pager import Pager
from integration_sdk._sansio.requests import listing
from integration_sdk.dialect import Dialect

ITEMS = 20_000
ROUNDS = 7


class Envelope(msgspec.Struct):
    """What the raw reader needs of a page."""

    totalResults: int  # noqa: N815 (the service's name)
    results: list[msgspec.Raw]


# Readers: each reads all items and returns how many there were


def raw_socket(server: PageServer, page_size: int) -> int:
    url = urlsplit(server.base_url)
    split = msgspec.json.Decoder(Envelope).decode
    decode = msgspec.json.Decoder().decode
    count, number = 0, 1
    with socket.create_connection((url.hostname, url.port)) as line:
        while True:
            page = split(_receive(line, f"{PATH}?page={number}&pageSize={page_size}"))
            for raw in page.results:
                decode(raw)
                count += 1
            number += 1
            if count >= page.totalResults:
                return count


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


def ours(server: PageServer, page_size: int) -> int:
    async def read() -> int:
        session = Session(base_url=server.base_url, api_key="benchmark")
        request = listing(Dialect.document(), "companies.list", page_size=page_size)
        count = 0
        async for _ in Pager[Any](
            lambda request: session.send(request, CallOptions()), request, base_url=server.base_url
        ):
            count += 1
        await session.aclose()
        return count

    return asyncio.run(read())


def aiohttp_and_json(server: PageServer, page_size: int) -> int:
    async def read() -> int:
        count, target = 0, f"{PATH}?page=1&pageSize={page_size}"
        async with aiohttp.ClientSession(server.base_url) as session:
            while True:
                async with session.get(target) as answer:
                    page = await answer.json(loads=json.loads)
                for _ in page["results"]:
                    count += 1
                if (following := page["_links"].get("next")) is None:
                    return count
                target = following["href"]

    return asyncio.run(read())


Reader = Callable[[PageServer, int], int]
READERS: dict[str, Reader] = {
    "raw socket + msgspec": raw_socket,
    "integration_sdk": ours,
    "aiohttp + json": aiohttp_and_json,
}


def measure(server: PageServer, page_size: int) -> dict[str, float]:
    """Return the median CPU per item, in microseconds, of each reader."""
    seconds: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in range(ROUNDS):
        for name, reader in READERS.items():
            began = time.process_time()
            count = reader(server, page_size)
            seconds[name].append(time.process_time() - began)
            assert count == ITEMS
    return {name: statistics.median(took) / ITEMS * 1e6 for name, took in seconds.items()}


def main() -> None:
    pin_to_core(0)
    print(f"CPU per record, {ITEMS:,} records of 2.1 KB, median of {ROUNDS}")
    print(f"{'page size':>9}  {'reader':<24}{'us/record':>10}{'of the limit':>14}{'requests':>10}")
    with page_server(ITEMS) as server:
        for page_size in (5000, 1000, 100):
            took = measure(server, page_size)
            requests = server.requests // (ROUNDS * len(READERS))
            limit = took["raw socket + msgspec"]
            for name, micros in took.items():
                print(
                    f"{page_size:>9}  {name:<24}{micros:>10.2f}{limit / micros:>14.2f}{requests:>10}"
                )


if __name__ == "__main__":
    main()
