"""A service in virtual time, without sockets: it answers pushes, lists and reads, and counts.

A `Model` stands where a client has its caller. Completion times come from a function; what
the service does wrong (no list, a lagging list, failures) is set by attributes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk.errors import ApiError, ClientClosed, IntegrationError, NotSent
from integration_sdk.models import PushRequest

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Takes = Callable[[dict[str, Any]], float]


@dataclass(slots=True)
class Held:
    """A push as the service knows it."""

    key: str
    company: str
    connection: str
    data_type: str
    began: float
    ends: float
    status: str
    record: dict[str, Any]

    def status_at(self, now: float) -> str:
        return self.status if now >= self.ends else "Pending"


@dataclass
class _Slot:
    model: Model
    request: Request

    async def send(self) -> Reply:
        try:
            return await self.model.send(self.request)
        except IntegrationError as error:
            never_left = isinstance(error, NotSent | ClientClosed | ApiError)
            return Failure(Phase.NEVER_LEFT if never_left else Phase.MAY_HAVE_LEFT, error)


@dataclass
class Model:
    """The service.

    takes: Seconds that a record takes; infinite for never.
    latency: Seconds of every answer.
    list_lag: Seconds by which lists are out of date; state_lag: as to states only.
    answer: Called with each request first; what it returns is the answer.
    """

    takes: Takes = lambda record: 2.0
    status: Callable[[dict[str, Any]], str] = lambda record: "Success"
    latency: float = 0.03
    list_lag: float = 0.0
    state_lag: float = 0.0
    list_has_data: bool = True
    connection_name: str | None = None
    largest_page: int = 5000
    answer: Callable[[Request], Response | BaseException | None] | None = None
    pushes: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, Held] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    by_company: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    made: int = 0

    @asynccontextmanager
    async def slot(self, request: Request) -> AsyncIterator[_Slot]:
        """Yield a slot whose `send` is this model's, with failures as `Session.slot` has them."""
        await self.turn(request)
        yield _Slot(self, request)

    async def turn(self, request: Request) -> None:
        """Return when it is the turn of *request*; at once, unless a test has it wait."""

    async def send(self, request: Request) -> Response:
        self.counts[request.operation] += 1
        if request.operation != "push.create":
            self.by_company[str(request.company_id)] += 1
        await asyncio.sleep(self.latency / 2)
        response = self._answer(request)
        await asyncio.sleep(self.latency / 2)
        if isinstance(response, BaseException):
            raise response
        return response

    def _answer(self, request: Request) -> Response | BaseException:
        said = self.answer(request) if self.answer else None
        if said is not None:
            return said
        if request.operation == "push.create":
            return self._create(request)
        if request.operation == "pushes.list":
            return self._list(request)
        return self._get(request)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def add(self, company: str, connection: str, data_type: str, record: dict[str, Any]) -> Held:
        now = self.now()
        self.made += 1
        key = f"{self.made:08x}-0000-4000-8000-000000000000"
        takes = self.takes(record)
        held = Held(
            key, company, connection, data_type, now, now + takes, self.status(record), record
        )
        self.pushes[company].append(held)
        self.by_key[key] = held
        return held

    def _create(self, request: Request) -> Response:
        _, company, _, connection, _, data_type = request.path.strip("/").split("/")
        record = json.loads(request.body or b"{}")
        return self.ok(self.shown(self.add(company, connection, data_type, record)))

    def _get(self, request: Request) -> Response:
        held = self.by_key.get(request.path.rsplit("/", 1)[-1])
        return self.ok(self.shown(held)) if held else error(404)

    def _list(self, request: Request) -> Response:
        params = dict(request.params)
        page, size = int(params["page"]), min(int(params["pageSize"]), self.largest_page)
        held = self.pushes[str(request.company_id)]
        seen = self.now() - self.list_lag
        total = len(held)
        while total and held[total - 1].began > seen:
            total -= 1
        end = total - (page - 1) * size
        rows = held[max(0, end - size) : max(0, end)][::-1]
        self.rows += len(rows)
        links = {"next": {"href": "/next"}} if end > size else {}
        return self.ok(
            {
                "results": [self.shown(one, at=seen - self.state_lag, listed=True) for one in rows],
                "pageNumber": page,
                "pageSize": size,
                "totalResults": total,
                "_links": links,
            }
        )

    def shown(self, held: Held, *, at: float | None = None, listed: bool = False) -> dict[str, Any]:
        status = held.status_at(self.now() if at is None else at)
        done = status != "Pending"
        shown: dict[str, Any] = {
            "pushOperationKey": held.key,
            "companyId": held.company,
            self.connection_name or "dataConnectionId": held.connection,
            "dataType": held.data_type,
            "status": status,
            "requestedOnUtc": stamp(held.began),
            "completedOnUtc": stamp(held.ends) if done else None,
            "data": {},
            "validation": {"errors": [], "warnings": []},
        }
        if done:
            shown["data"] = {**held.record, "id": held.key}
        if listed and not self.list_has_data:
            del shown["data"]
        return shown

    def ok(self, body: Any) -> Response:
        return Response(status=200, body=json.dumps(body).encode(), received_at=self.now())


def stamp(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def error(
    status: int, text: str = "no", *, message: str = "", after: float | None = None
) -> Response:
    body: dict[str, Any] = {
        "statusCode": status,
        "service": "model",
        "error": text,
        "correlationId": "c-1",
        "validation": {"errors": [{"message": message}] if message else [], "warnings": []},
    }
    headers = {} if after is None else {"Retry-After": str(after)}
    return Response(status=status, headers=headers, body=json.dumps(body).encode())


def request(number: int = 0, *, companies: int = 1, **options: Any) -> PushRequest:
    company = number % companies
    return PushRequest(
        f"company-{company}", f"connection-{company}", "invoices", {"number": number}, **options
    )
