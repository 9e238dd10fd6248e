"""A service in virtual time under a real `Client`: no sockets, any faults, every request noted.

The client is the public one, with an aiohttp session whose connections end in memory. So whatever
sends, retries or polls inside the package, `Service.log` has each request that would have left the
machine, and when. A `Fault` stands around the service's answer; any number of them combine.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from integration_sdk import Client

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(eq=False, slots=True)
class Held:
    """A push as the service knows it."""

    key: str
    company: str
    connection: str
    data_type: str
    record: Any
    began: float
    ends: float

    def shown(self, at: float) -> bytes:
        done = at >= self.ends
        return json.dumps(
            {
                "pushOperationKey": self.key,
                "companyId": self.company,
                "dataConnectionId": self.connection,
                "dataType": self.data_type,
                "status": "Success" if done else "Pending",
                "requestedOnUtc": stamp(self.began),
                "completedOnUtc": stamp(self.ends) if done else None,
                "data": self.record if done else {},
                "validation": {"errors": [], "warnings": []},
            }
        ).encode()


@dataclass(eq=False, slots=True)
class Asked:
    """A request as it arrived.

    kind: push, get, list (of pushes), options, or other.
    query: The parameters as they were sent.
    company, key: Of the push or list; empty for none.
    hidden, late: Seconds for which this list hides new pushes, and for which its states are old.
    largest: Rows of a page of this list, at most.
    held: The push, if there is one.
    rows: What faults do to the rows of this list.
    """

    at: float
    method: str
    segments: list[str]
    query: str
    body: bytes
    hidden: float = 0.0
    late: float = 0.0
    largest: int = 5000
    held: Held | None = None
    rows: list[Callable[[list[Held]], list[Held]]] = field(default_factory=list)

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(self.query))

    @property
    def company(self) -> str:
        return self.segments[1] if len(self.segments) > 1 else ""

    @property
    def kind(self) -> str:
        match self.method, self.segments:
            case "POST" | "PUT" | "DELETE", ["companies", _, "connections", _, "push", *_]:
                return "push"
            case "GET", ["companies", _, "push", _]:
                return "get"
            case "GET", ["companies", _, "push"]:
                return "list"
        return "options" if "options" in self.segments else "other"

    @property
    def key(self) -> str:
        return self.segments[3] if self.kind == "get" else ""


@dataclass(slots=True)
class Answer:
    """What goes back.

    seconds: How long it takes; None for the service's latency.
    cut: Bytes of the body after which the connection ends.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    cut: int | None = None

    def encoded(self) -> bytes:
        headers = {"Content-Type": "application/json"} | self.headers
        lines = [f"HTTP/1.1 {self.status} X"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode() + self.body[: self.cut]


Proceed = Callable[[], Answer]
Fault = Callable[[Asked, Proceed], Answer]


@dataclass(eq=False)
class Service:
    """The service.

    takes: Seconds that a push takes; infinite for never.
    latency: Seconds of an answer.
    """

    takes: Callable[[Any], float] = lambda record: inf
    faults: list[Fault] = field(default_factory=list)
    log: list[Asked] = field(default_factory=list)
    pushes: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, Held] = field(default_factory=dict)
    latency: float = 0.0005
    numbers: Iterator[int] = field(default_factory=count)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        connector = _Connector(self)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            Client("key-of-the-account", "http://localhost", session=session, **options) as client,
        ):
            yield client

    def add(self, company: str = "c-0", record: Any = None, *path: str) -> Held:
        """Record a push, as one that was made before."""
        connection, data_type = path or ("books", "invoices")
        now, number = asyncio.get_running_loop().time(), next(self.numbers)
        key = f"{number:08x}-0000-4000-8000-000000000000"
        ends = now + self.takes(record)
        held = Held(key, company, connection, data_type, record or {}, now, ends)
        self.pushes[company].append(held)
        self.by_key[key] = held
        return held

    def answer(self, asked: Asked) -> Answer:
        """Note *asked* and answer it, as the faults let it."""
        self.log.append(asked)
        asked.held = self.by_key.get(asked.key)
        proceed: Proceed = lambda: self._answer(asked)  # noqa: E731 - each fault wraps it
        for fault in self.faults:
            proceed = _around(fault, asked, proceed)
        return proceed()

    def _answer(self, asked: Asked) -> Answer:
        match asked.kind:
            case "push":
                record = json.loads(asked.body or b"{}")
                held = self.add(asked.company, record, asked.segments[3], asked.segments[5])
                return Answer(body=held.shown(asked.at))
            case "get":
                return Answer(body=asked.held.shown(asked.at)) if asked.held else refusal(404)
            case "list":
                return self._list(asked)
        return Answer()

    def _list(self, asked: Asked) -> Answer:
        page, size = int(asked.params["page"]), min(int(asked.params["pageSize"]), asked.largest)
        rows = [one for one in self.pushes[asked.company] if one.began <= asked.at - asked.hidden]
        rows.reverse()
        for change in asked.rows:
            rows = change(rows)
        shown = [one.shown(asked.at - asked.late) for one in rows[(page - 1) * size : page * size]]
        more = b'{"next":{"href":"/next"}}' if len(rows) > page * size else b"{}"
        return Answer(
            body=b'{"results":[%b],"pageNumber":%d,"pageSize":%d,"totalResults":%d,"_links":%b}'
            % (b",".join(shown), page, size, len(rows), more)
        )


def _around(fault: Fault, asked: Asked, proceed: Proceed) -> Proceed:
    return lambda: fault(asked, proceed)


def refusal(status: int, **headers: str) -> Answer:
    """Return an error as the document has it."""
    body = {"statusCode": status, "service": "s", "error": "no", "correlationId": "c-1"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), named)


def stamp(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=min(seconds, 1e9))).isoformat().replace("+00:00", "Z")


# The wire


class _Connector(aiohttp.BaseConnector):
    """Opens connections that end in memory, at *service*."""

    def __init__(self, service: Service) -> None:
        super().__init__(limit=0)
        self._service = service

    async def _create_connection(self, *_: Any) -> ResponseHandler:
        protocol = self._factory()
        protocol.connection_made(_Wire(self._service, protocol))
        return protocol


class _Wire(asyncio.Transport):
    """The client's end of a connection: what is written to it is answered some time later."""

    def __init__(self, service: Service, protocol: ResponseHandler) -> None:
        super().__init__()
        self._service, self._protocol = service, protocol
        self._loop = asyncio.get_running_loop()
        self._written = b""
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += bytes(data)
        head, complete, body = self._written.partition(b"\r\n\r\n")
        if complete and len(body) >= (length := _length(head)):
            self._written = body[length:]
            answer = self._service.answer(_read(self._loop.time(), head, body[:length]))
            seconds = self._service.latency if answer.seconds is None else answer.seconds
            self._loop.call_later(seconds, self._reply, answer)

    def _reply(self, answer: Answer) -> None:
        if self._closed:
            return
        if answer.cut != 0:
            self._protocol.data_received(answer.encoded())
        if answer.cut is not None:
            self.close()

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: an answer comes whole."""

    def resume_reading(self) -> None:
        """Do nothing."""


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _read(at: float, head: bytes, body: bytes) -> Asked:
    method, target, _ = head.partition(b"\r\n")[0].decode().split(" ")
    url = urlsplit(target)
    segments = [unquote(part) for part in url.path.strip("/").split("/")]
    return Asked(at, method, segments, url.query, body)
