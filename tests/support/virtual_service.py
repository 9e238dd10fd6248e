"""A service in virtual time under a real `Client`: no sockets, any faults, every request noted.

The client is the public one, with an aiohttp session whose connections end in memory. So whatever
sends, retries or polls inside the package, `Service.log` has each request that would have left the
machine, and when. `Service.answer` says what goes wrong, or a `Fault` that stands around the
service's answer; any number of faults combine. Tests and benchmarks share it.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from integration_sdk import Client

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(eq=False, slots=True)
class Held:
    """A push as the service knows it; *status* is how it ends."""

    key: str
    company: str
    connection: str
    data_type: str
    record: Any
    began: float
    ends: float
    status: str


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
    head: bytes
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
    def headers(self) -> dict[str, str]:
        lines = self.head.decode().split("\r\n")[1:]
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

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
    at: When it is made, which the header Date tells; None to leave that out.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    cut: int | None = None
    at: float | None = None

    @classmethod
    def of(cls, body: Any, status: int = 200) -> Answer:
        return cls(status, json.dumps(body).encode())

    def encoded(self) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.at is not None:
            headers["Date"] = format_datetime(EPOCH + timedelta(seconds=self.at), usegmt=True)
        headers |= self.headers
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
    status: How it ends.
    answer: Called with each request first; what it returns is the answer.
    latency: Seconds of an answer.
    list_has_data: Whether lists show the data of pushes.
    connection_name: What a push's connection is called.
    dates: Whether answers have a header Date.
    in_flight: Requests that have come, and wait for their answer.
    """

    takes: Callable[[Any], float] = lambda record: 2.0
    faults: list[Fault] = field(default_factory=list)
    status: Callable[[Any], str] = lambda record: "Success"
    answer: Callable[[Asked], Answer | None] | None = None
    log: list[Asked] = field(default_factory=list)
    pushes: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, Held] = field(default_factory=dict)
    latency: float = 0.03
    list_has_data: bool = True
    connection_name: str = "dataConnectionId"
    dates: bool = True
    in_flight: int = 0
    numbers: Iterator[int] = field(default_factory=count)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        connector = _Connector(self)
        async with (
            connector,
            Client(
                "key-of-the-account", "http://localhost", connector=connector, **options
            ) as client,
        ):
            yield client

    def count(self, *kinds: str) -> int:
        """Return how many requests of these kinds have come; of no kind, of any."""
        return sum(asked.kind in kinds for asked in self.log) if kinds else len(self.log)

    def times(self, kind: str) -> list[float]:
        """Return when requests of this kind have come."""
        return [asked.at for asked in self.log if asked.kind == kind]

    def add(
        self,
        company: str = "c-0",
        connection: str = "books",
        data_type: str = "invoices",
        record: Any = None,
    ) -> Held:
        """Record a push, as one that was made before."""
        now, number = asyncio.get_running_loop().time(), next(self.numbers)
        key = f"{number:08x}-0000-4000-8000-000000000000"
        record = record or {}
        ends, status = now + self.takes(record), self.status(record)
        held = Held(key, company, connection, data_type, record, now, ends, status)
        self.pushes[company].append(held)
        self.by_key[key] = held
        return held

    def respond(self, asked: Asked) -> Answer:
        """Note *asked* and answer it, as the faults let it."""
        self.log.append(asked)
        held = self.by_key.get(asked.key)
        asked.held = held if held and held.company == asked.company else None
        said = self.answer(asked) if self.answer else None
        proceed: Proceed = lambda: said or self.carry_out(asked)
        for fault in self.faults:
            proceed = partial(fault, asked, proceed)
        answer = proceed()
        return replace(answer, at=asked.at) if self.dates else answer

    def carry_out(self, asked: Asked) -> Answer:
        """Answer *asked* as if nothing were wrong."""
        match asked.kind:
            case "push":
                record = json.loads(asked.body or b"{}")
                held = self.add(asked.company, asked.segments[3], asked.segments[5], record)
                return Answer.of(self.shown(held, asked.at))
            case "get" if asked.held:
                return Answer.of(self.shown(asked.held, asked.at))
            case "get":
                return refusal(404)
            case "list":
                return self._list(asked)
        return Answer()

    def shown(self, held: Held, at: float) -> dict[str, Any]:
        """Return *held* as it is told of, at that time."""
        done = at >= held.ends
        return {
            "pushOperationKey": held.key,
            "companyId": held.company,
            self.connection_name: held.connection,
            "dataType": held.data_type,
            "status": held.status if done else "Pending",
            "requestedOnUtc": stamp(held.began),
            "completedOnUtc": stamp(held.ends) if done else None,
            "data": {**held.record, "id": held.key} if done else {},
            "validation": {"errors": [], "warnings": []},
        }

    def _list(self, asked: Asked) -> Answer:
        page, size = int(asked.params["page"]), min(int(asked.params["pageSize"]), asked.largest)
        rows = [one for one in self.pushes[asked.company] if one.began <= asked.at - asked.hidden]
        rows.reverse()
        for change in asked.rows:
            rows = change(rows)
        at = asked.at - asked.late
        shown = [self.shown(one, at) for one in rows[(page - 1) * size : page * size]]
        if not self.list_has_data:
            for one in shown:
                del one["data"]
        return Answer.of(
            {
                "results": shown,
                "pageNumber": page,
                "pageSize": size,
                "totalResults": len(rows),
                "_links": {"next": {"href": "/next"}} if len(rows) > page * size else {},
            }
        )


def refusal(status: int, error: str = "no", *, message: str = "", **headers: object) -> Answer:
    """Return an error as the document has it; *message* is that of its validation."""
    body = {
        "statusCode": status,
        "service": "s",
        "error": error,
        "correlationId": "c-1",
        "validation": {"errors": [{"message": message}] if message else [], "warnings": []},
    }
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), named)


def no_answer() -> Answer:
    """Return no answer: the connection ends in its place."""
    return Answer(cut=0)


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
        self._due: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += bytes(data)
        head, complete, body = self._written.partition(b"\r\n\r\n")
        if complete and len(body) >= (length := _length(head)):
            self._written = body[length:]
            self._service.in_flight += 1
            answer = self._service.respond(_read(self._loop.time(), head, body[:length]))
            seconds = self._service.latency if answer.seconds is None else answer.seconds
            self._due = self._loop.call_later(seconds, self._reply, answer)

    def _reply(self, answer: Answer) -> None:
        self._let_go()
        if answer.cut != 0:
            self._protocol.data_received(answer.encoded())
        if answer.cut is not None:
            self.close()

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._let_go()
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def _let_go(self) -> None:
        """Wait for no answer any more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self._service.in_flight -= 1

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
    return Asked(at, method, segments, url.query, head, body)
