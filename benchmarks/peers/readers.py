"""Readers of a long list: what people use today, and the limits of machine and packages.

Each imports what it needs by itself: a contender may live in an environment that has no more.
"""

# mypy: disable-error-code="import-not-found"
# ruff: noqa: PLC0415

from __future__ import annotations

import gc
import socket
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import urlsplit

from benchmarks.peers._frame import COMPANY, Job, reads

PATH = f"/companies/{COMPANY}/data/invoices"
SPLIT_BYTES = 256 * 1024
"""A smaller page is decoded whole, with the collector paused; a larger one record by record."""


def raw_socket(job: Job) -> Iterator[object]:
    """The limit: a blocking socket and msgspec. Receive a page, split it, decode each item."""
    import msgspec

    page: Any = msgspec.defstruct("page", [("results", list[msgspec.Raw])])
    split = msgspec.json.Decoder(page).decode
    decode = msgspec.json.Decoder().decode
    for body in _bodies(job):
        for raw in split(body).results:
            yield decode(raw)


def receive_only(job: Job) -> Iterator[object]:
    """The server's own limit: receive every page without decoding it."""
    for body in _bodies(job):
        yield from body[: job.page_size]


def _bodies(job: Job) -> Iterator[memoryview]:
    import msgspec

    envelope: Any = msgspec.defstruct("envelope", [("totalResults", int)])
    total = msgspec.json.Decoder(envelope).decode
    url = urlsplit(job.base_url)
    pages, number = 1, 1
    with socket.create_connection((url.hostname, url.port)) as line:
        while number <= pages:
            body = _receive(line, f"{PATH}?page={number}&pageSize={job.page_size}")
            if number == 1:
                pages = -(-total(body).totalResults // job.page_size)
            yield body
            number += 1


def _receive(line: socket.socket, target: str) -> memoryview:
    line.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    headers, _, start = line.recv(65536).partition(b"\r\n\r\n")
    length = int(headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray(length)
    body[: len(start)] = start
    view, filled = memoryview(body), len(start)
    while filled < length:
        filled += line.recv_into(view[filled:])
    return view


async def aiohttp_msgspec(job: Job) -> AsyncGenerator[object, None]:
    """The best that aiohttp allows: a page at a time, decoded the faster way, nothing else."""
    import aiohttp
    import msgspec

    links = ("links", dict[str, dict[str, str]], msgspec.field(name="_links"))
    split, whole = (
        msgspec.json.Decoder(msgspec.defstruct("page", [("results", kind), links])).decode
        for kind in (list[msgspec.Raw], list[dict[str, Any]])
    )
    decode = msgspec.json.Decoder().decode

    def read(body: bytes) -> Any:
        if len(body) > SPLIT_BYTES:
            return split(body)
        gc.disable()
        try:
            return whole(body)
        finally:
            gc.enable()

    target = f"{PATH}?page=1&pageSize={job.page_size}"
    async with aiohttp.ClientSession(job.base_url) as session:
        while target:
            async with session.get(target) as answer:
                body = await answer.read()
            page = read(body)
            for item in page.results:
                yield decode(item) if isinstance(item, msgspec.Raw) else item
            target = page.links.get("next", {}).get("href", "")


async def aiohttp_json(job: Job) -> AsyncGenerator[object, None]:
    """aiohttp and json, following ``_links.next``: what most people write."""
    import aiohttp

    target = f"{PATH}?page=1&pageSize={job.page_size}"
    async with aiohttp.ClientSession(job.base_url) as session:
        while target:
            async with session.get(target) as answer:
                page = await answer.json()
            for item in page["results"]:
                yield item
            target = page["_links"].get("next", {}).get("href")


async def httpx_json(job: Job) -> AsyncGenerator[object, None]:
    """httpx and its ``json()``, likewise."""
    import httpx

    target = f"{PATH}?page=1&pageSize={job.page_size}"
    async with httpx.AsyncClient(base_url=job.base_url) as client:
        while target:
            answer = await client.get(target)
            page = answer.raise_for_status().json()
            for item in page["results"]:
                yield item
            target = page["_links"].get("next", {}).get("href")


def dlt_rest_client(job: Job) -> Iterator[object]:
    """dlt's RESTClient with its paginator for links in the answer's JSON."""
    from dlt.sources.helpers.rest_client import RESTClient
    from dlt.sources.helpers.rest_client.paginators import JSONLinkPaginator

    client = RESTClient(
        base_url=job.base_url,
        paginator=JSONLinkPaginator(next_url_path="_links.next.href"),
        data_selector="results",
    )
    for page in client.paginate(PATH, params={"page": 1, "pageSize": job.page_size}):
        yield from page


if __name__ == "__main__":
    reads(raw_socket, receive_only, aiohttp_msgspec, aiohttp_json, httpx_json, dlt_rest_client)
