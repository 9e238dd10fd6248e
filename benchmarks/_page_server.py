"""A cheap page server for benchmarks: every answer is ready in memory.

It runs in a process of its own, on the machine's last core if there are two, so that the
client's process measures only the client. Pages differ in number, links and first record;
the other records are shared. Each answer is delayed by *latency*. Every path is a list of
the same records; its links are those of the interface document, "Page envelope".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from attrs import frozen

from benchmarks._machine import pinned_to_last_core
from benchmarks._servers import in_own_process


def invoice(index: int) -> dict[str, Any]:
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


@frozen
class PageServer:
    """The server's address, and the requests that it has answered."""

    base_url: str
    process: int
    _pipe: Connection

    @property
    def requests(self) -> int:
        """Requests answered since this property was last read."""
        self._pipe.send("count")
        return int(self._pipe.recv())


@contextmanager
def page_server(items: int, *, latency: float = 0.0) -> Iterator[PageServer]:
    """Serve lists of *items* records until the block is left."""
    with in_own_process(_serve, items, latency) as (pipe, process):
        yield PageServer(f"http://127.0.0.1:{pipe.recv()}", process, pipe)


def _serve(pipe: Connection, items: int, latency: float) -> None:
    pinned_to_last_core()
    asyncio.run(_Server(items, latency).run(pipe))


class _Server:
    def __init__(self, items: int, latency: float) -> None:
        self.items = items
        self.latency = latency
        self.answered = 0
        self.records: dict[int, bytes] = {}

    async def run(self, pipe: Connection) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), "127.0.0.1", 0
        )
        pipe.send(server.sockets[0].getsockname()[1])
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._tell, pipe)
        await asyncio.get_running_loop().create_future()

    def _tell(self, pipe: Connection) -> None:
        pipe.recv()
        pipe.send(self.answered)
        self.answered = 0

    def answer(self, target: str) -> tuple[bytes, bytes]:
        url = urlsplit(target)
        query = parse_qs(url.query)
        number, size = int(query["page"][0]), int(query["pageSize"][0])
        count = max(min(size, self.items - (number - 1) * size), 0)
        if count and count not in self.records:
            others = [invoice(index) for index in range(1, count)]
            self.records[count] = b"," * (count > 1) + msgspec.json.encode(others)[1:]
        links = {"self": {"href": url.path}, "current": {"href": target}}
        if number * size < self.items:
            links["next"] = {"href": f"{url.path}?page={number + 1}&pageSize={size}"}
        facts = {
            "pageNumber": number,
            "pageSize": size,
            "totalResults": self.items,
            "_links": links,
        }
        head = msgspec.json.encode(facts)[:-1] + b',"results":['
        self.answered += 1
        if not count:
            return head, b"]"
        return head + msgspec.json.encode(invoice(number * 10_000)), self.records[count]


class _Connection(asyncio.Protocol):
    """The part of HTTP that a GET without a body needs."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            if self.server.latency:
                loop = asyncio.get_running_loop()
                loop.call_later(self.server.latency, self._answer, target)
            else:
                self._answer(target)

    def _answer(self, target: str) -> None:
        head, records = self.server.answer(target)
        length = len(head) + len(records) + 1
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (length, head)
        )
        self.transport.write(records)
        self.transport.write(b"}")
