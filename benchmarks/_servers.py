"""Servers in processes of their own, on the machine's last core, so that clients measure clients.

`sandbox_server` is the sandbox; `page_server` has every page ready in memory; `ready_server`
sends one small answer to whatever it receives, a number of times a second if told so.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from attrs import define, frozen

from benchmarks._machine import pinned_to_last_core
from benchmarks.peers._frame import Job
from integration_sdk.sandbox import Sandbox

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BUSY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b'Content-Length: 46\r\n\r\n{"statusCode": 429, "error": "Too many calls"}'
)
EMPTY = b'{"results": [], "pageNumber": 1, "pageSize": 100, "totalResults": 0, "_links": {}}'


@contextmanager
def _in_own_process(serve: Callable[..., Any], *told: Any) -> Iterator[tuple[Connection, int]]:
    """Run ``await serve(pipe, *told)``; yield the other end of the pipe, and the process' id."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(serve, theirs, *told), daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield ours, process.pid or 0
    finally:
        process.kill()
        process.join()
        ours.close()


def _serve(serve: Callable[..., Any], pipe: Connection, *told: Any) -> None:
    pinned_to_last_core()
    asyncio.run(serve(pipe, *told))


async def _told_when_asked(pipe: Connection, facts: Callable[[], object]) -> None:
    """Send *facts* for each message that comes, until the process is killed."""

    def tell() -> None:
        pipe.recv()
        pipe.send(facts())

    asyncio.get_running_loop().add_reader(pipe.fileno(), tell)
    await asyncio.Event().wait()


# The sandbox


@frozen
class Served:
    """What the sandbox has seen.

    Attributes:
        requests: Number of requests answered.
        ended: When each push ended, in seconds since 1970, by key.
    """

    requests: int
    ended: dict[str, float]


@frozen
class SandboxServer:
    """The sandbox's address; *lanes* are its companies, each with a connection."""

    base_url: str
    api_key: str
    lanes: tuple[tuple[str, str], ...]
    process: int
    _pipe: Connection

    def job(self, **told: Any) -> Job:
        """Return the job of a contender that works with it."""
        return Job(self.base_url, self.api_key, lanes=self.lanes, **told)

    def served(self) -> Served:
        """Return what the sandbox has seen so far."""
        self._pipe.send("served")
        return Served(*self._pipe.recv())


@contextmanager
def sandbox_server(**settings: Any) -> Iterator[SandboxServer]:
    """Serve a sandbox with *settings*."""
    settings = {"invoices": 0, "remember": 0, "unlinked": 0} | settings
    with _in_own_process(_sandbox, settings) as (pipe, process):
        base_url, api_key, lanes = pipe.recv()
        yield SandboxServer(base_url, api_key, lanes, process, pipe)


async def _sandbox(pipe: Connection, settings: Mapping[str, Any]) -> None:
    async with Sandbox(**settings) as sandbox:
        behind = time.time() - sandbox.clock.now()
        lanes = tuple((company.id, company.connections[0].id) for company in sandbox.companies)
        pipe.send((sandbox.base_url, sandbox.api_key, lanes))

        def seen() -> tuple[int, dict[str, float]]:
            ended = {
                push.key: push.completed + behind
                for push in sandbox.pushes
                if push.completed is not None
            }
            return sandbox.served, ended

        await _told_when_asked(pipe, seen)


# Pages and answers that are ready in memory


@frozen
class PageServer:
    """The server's address, and the requests that it has answered."""

    base_url: str
    process: int
    _pipe: Connection

    @property
    def requests(self) -> int:
        """Requests answered so far."""
        self._pipe.send("count")
        return int(self._pipe.recv())


@contextmanager
def page_server(items: int, *, latency: float = 0.0) -> Iterator[PageServer]:
    """Serve lists of *items* records until the block is left.

    Every path is a list of the same records; its links are those of the interface document, "Page
    envelope". Pages differ in number, links and first record; the other records are shared.
    """
    with _in_own_process(_pages, items, latency) as (pipe, process):
        yield PageServer(pipe.recv(), process, pipe)


@frozen
class ReadyServer:
    """The server's address, and its answers by status."""

    base_url: str
    _pipe: Connection

    def counts(self) -> Counter[int]:
        """Return the number of answers so far, by status."""
        self._pipe.send("count")
        return Counter(self._pipe.recv())


@contextmanager
def ready_server(rate: float = 1e9) -> Iterator[ReadyServer]:
    """Answer each piece of data, which is not parsed, with an empty page.

    Beyond *rate* a second (a bucket of as many tokens), the answer is 429, ``Retry-After: 1``.
    """
    with _in_own_process(_ready, rate) as (pipe, _):
        yield ReadyServer(pipe.recv(), pipe)


async def _pages(pipe: Connection, items: int, latency: float) -> None:
    pages = _Pages(items)
    await _listen(pipe, lambda: _PageConnection(pages, latency))
    await _told_when_asked(pipe, lambda: pages.answered)


async def _ready(pipe: Connection, rate: float) -> None:
    bucket = _Bucket(rate, rate, time.monotonic(), Counter())
    await _listen(pipe, lambda: _ReadyConnection(bucket))
    await _told_when_asked(pipe, lambda: bucket.answers)


async def _listen(pipe: Connection, connection: Callable[[], asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await server.start_serving()


@define
class _Bucket:
    rate: float
    tokens: float
    at: float
    answers: Counter[int]

    def take(self) -> bool:
        now = time.monotonic()
        self.tokens = min(self.rate, self.tokens + (now - self.at) * self.rate)
        self.at = now
        allowed = self.tokens >= 1
        self.tokens -= allowed
        self.answers[200 if allowed else 429] += 1
        return allowed


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport


class _ReadyConnection(_Connection):
    def __init__(self, bucket: _Bucket) -> None:
        self.bucket = bucket

    def data_received(self, data: bytes) -> None:
        self.transport.write(HEAD % len(EMPTY) + EMPTY if self.bucket.take() else BUSY)


class _PageConnection(_Connection):
    """The part of HTTP that a GET without a body needs."""

    def __init__(self, pages: _Pages, latency: float) -> None:
        self.pages, self.latency, self.received = pages, latency, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            if self.latency:
                asyncio.get_running_loop().call_later(self.latency, self._answer, target)
            else:
                self._answer(target)

    def _answer(self, target: str) -> None:
        start, records = self.pages.page(target)
        self.transport.write(HEAD % (len(start) + len(records) + 1) + start)
        self.transport.write(records)
        self.transport.write(b"}")


class _Pages:
    def __init__(self, items: int) -> None:
        self.items = items
        self.answered = 0
        self.records: dict[int, bytes] = {}

    def page(self, target: str) -> tuple[bytes, bytes]:
        """Return the page up to its first record, and the rest of its records."""
        self.answered += 1
        url = urlsplit(target)
        query = parse_qs(url.query)
        number, size = int(query["page"][0]), int(query["pageSize"][0])
        count = max(min(size, self.items - (number - 1) * size), 0)
        links = {"self": {"href": url.path}, "current": {"href": target}}
        if number * size < self.items:
            links["next"] = {"href": f"{url.path}?page={number + 1}&pageSize={size}"}
        facts = {
            "pageNumber": number,
            "pageSize": size,
            "totalResults": self.items,
            "_links": links,
        }
        start = msgspec.json.encode(facts)[:-1] + b',"results":['
        if not count:
            return start, b"]"
        if count not in self.records:
            others = [_invoice(index) for index in range(1, count)]
            self.records[count] = b"," * (count > 1) + msgspec.json.encode(others)[1:]
        return start + msgspec.json.encode(_invoice(number * 10_000)), self.records[count]


def _invoice(index: int) -> dict[str, Any]:
    """Return a record of 26 fields and about 2.1 KB, similar to an invoice."""
    moment = f"2023-0{1 + index % 9}-1{index % 10}T08:30:00Z"
    return {
        "id": f"{index:08d}-b0a1-4b5e-9d3c-5f1e2a7c9b10",
        "invoiceNumber": f"INV-{index:06d}",
        "customerRef": {"id": f"C-{index % 977}", "companyName": f"Customer {index % 977} Ltd"},
        **dict.fromkeys(("issueDate", "dueDate", "modifiedDate", "sourceModifiedDate"), moment),
        "paidOnDate": None,
        "currency": "GBP",
        "currencyRate": 1.0,
        "lineItems": [_line(index, position) for position in range(4)],
        "paymentAllocations": [],
        "totalDiscount": 0.0,
        "subTotal": 1234.5 + index % 100,
        "additionalTaxAmount": 0.0,
        "additionalTaxPercentage": 0.0,
        "totalTaxAmount": 246.9,
        "totalAmount": 1481.4 + index % 100,
        "amountDue": 1481.4,
        "discountPercentage": 0.0,
        "status": "Submitted",
        "note": "Delivered to the back door; please quote the order number. " * 5,
        "withholdingTax": [],
        "salesOrderRefs": [],
        "metadata": {"isDeleted": False},
        "supplementalData": {"content": {}},
    }


def _line(index: int, position: int) -> dict[str, Any]:
    return {
        "description": f"Widget {index % 89}-{position}, galvanised, box of twelve",
        "unitAmount": 102.875,
        "quantity": 3.0,
        "discountAmount": 0.0,
        "subTotal": 308.62,
        "taxAmount": 61.73,
        "totalAmount": 370.35,
        "accountRef": {"id": f"A-{position}", "name": "Sales"},
        "taxRateRef": {"id": "T-20", "name": "VAT 20%", "effectiveTaxRate": 20.0},
        "trackingCategoryRefs": [],
    }
