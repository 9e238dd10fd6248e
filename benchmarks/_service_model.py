"""A small model of the service without sockets, for a million pushes; it counts requests.

A push takes 16 bytes: when it began and when it ends. All else follows from its key.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from attrs import Factory, define

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response

LATENCY = 0.08


@define
class Books:
    """Pushes of one company: when each began and will end."""

    began: array[float] = Factory(lambda: array("d"))
    ends: array[float] = Factory(lambda: array("d"))


@define
class _Slot:
    service: Service
    request: Request

    async def send(self) -> Response:
        return await self.service.send(self.request)


@define
class Service:
    """Answers pushes, reads and lists without a socket, and counts.

    Attributes:
        takes: Seconds that a push takes.
        hours: Requests by hour.
        polls: Polls by ten minutes.
        kinds: Requests by operation.
    """

    takes: Callable[[], float]
    books: dict[str, Books] = Factory(dict)
    hours: Counter[int] = Factory(Counter)
    polls: Counter[int] = Factory(Counter)
    kinds: Counter[str] = Factory(Counter)

    @asynccontextmanager
    async def slot(self, request: Request) -> AsyncIterator[_Slot]:
        yield _Slot(self, request)

    async def send(self, request: Request) -> Response:
        now = asyncio.get_running_loop().time()
        self.hours[int(now // 3600)] += 1
        self.kinds[request.operation] += 1
        self.polls[int(now // 600)] += request.operation != "push.create"
        await asyncio.sleep(LATENCY)
        body = self._answer(request, now + LATENCY / 2)
        return Response(status=200, body=body.encode(), received_at=now + LATENCY)

    def _answer(self, request: Request, now: float) -> str:
        company = str(request.company_id)
        books = self.books.setdefault(company, Books())
        if request.operation == "push.create":
            books.began.append(now)
            books.ends.append(now + self.takes())
            return _operation(company, len(books.ends) - 1, books, now)
        if request.operation == "pushes.list":
            return _list(company, books, now, dict(request.params))
        return _operation(company, int(request.path[-12:], 16), books, now)

    @property
    def mib(self) -> float:
        """Memory that the books take, in MiB."""
        arrays = (one for books in self.books.values() for one in (books.began, books.ends))
        return sum(map(sys.getsizeof, arrays)) / 2**20

    def ended(self, key: str) -> float:
        """When push *key* ended."""
        return self.books[f"company-{int(key[:8], 16)}"].ends[int(key[-12:], 16)]


def _operation(company: str, index: int, books: Books, now: float) -> str:
    status = "Success" if books.ends[index] <= now else "Pending"
    key = f"{int(company[8:]):08x}-0000-4000-8000-{index:012x}"
    return (
        f'{{"pushOperationKey":"{key}","companyId":"{company}","dataConnectionId":"connection",'
        f'"dataType":"invoices","status":"{status}","requestedOnUtc":"2026-01-01T00:00:00Z",'
        '"completedOnUtc":null,"data":{},"validation":{"errors":[],"warnings":[]}}'
    )


def _list(company: str, books: Books, now: float, params: dict[str, str]) -> str:
    page, size, total = int(params["page"]), int(params["pageSize"]), len(books.ends)
    newest = total - (page - 1) * size
    indexes = range(newest - 1, max(newest - size, 0) - 1, -1)
    rows = ",".join(_operation(company, index, books, now) for index in indexes)
    more = ',"next":{"href":"/next"}' if newest > size else ""
    return (
        f'{{"pageNumber":{page},"pageSize":{size},"totalResults":{total},'
        f'"_links":{{"self":{{"href":"/"}}{more}}},"results":[{rows}]}}'
    )
