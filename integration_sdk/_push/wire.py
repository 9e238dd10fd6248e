"""The service as pushes see it: a turn to send a row once, lists of pushes, and single ones.

Lists and single pushes are read here for whoever needs them as evidence. Fractions are then read
exactly, since records are told apart by every digit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from itertools import dropwhile
from typing import ClassVar, Final, Protocol

from attrs import define, evolve, field, frozen

from integration_sdk._http import requests, responses
from integration_sdk._http.hints import told_time
from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Response
from integration_sdk._push import answers
from integration_sdk._push.evidence import ListedPushes, Operation
from integration_sdk._store.row import Row
from integration_sdk.dialect import Dialect
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

logger = logging.getLogger("integration_sdk.pushes")

SNAPSHOT: Final = 200
"""Most recent keys of a company that are remembered before its first push is sent."""
PAGE: Final = 500
MOST_PAGES: Final = 200


class Service(Protocol):
    """The service, reached by the client's session: gate, retries and key included."""

    async def send(self, request: Request) -> Response:
        """Return the answer, whatever its status, or raise.

        Raises:
            TransportError: There is none.
            ApiError: Nothing was sent: an earlier answer asked for too long a pause.
        """
        ...

    async def send_once(
        self, request: Request, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        """Await *before* when the turn has come, then send once."""
        ...


def page_request(dialect: Dialect, company_id: str, number: int, size: int) -> Request:
    """Return the request of a page of a company's pushes, newest first."""
    return requests.list_page(
        dialect,
        "pushes.list",
        page=number,
        page_size=size,
        order_by=dialect.newest_first,
        companyId=company_id,
    )


@frozen
class _KeyAlone:
    """A push that was there before, or whose row cannot be read: then it may be anybody's."""

    push_operation_key: str
    requested_on_utc: datetime | None
    data_connection_id: ClassVar[str | None] = None
    data_type: ClassVar[str | None] = None
    status: ClassVar[str] = "Unknown"
    is_final: ClassVar[bool] = False
    data: ClassVar[Mapping[str, object] | None] = None


@define(eq=False)
class Wire:
    """The service, for the pushes of one coordinator.

    Attributes:
        speaks_another: Whether the service has answered in another dialect.
    """

    service: Service
    dialect: Dialect
    speaks_another: bool = field(init=False, default=False)

    def hear(self, answer: bytes) -> None:
        """Note which dialect an *answer* with pushes is of."""
        self.speaks_another = self.speaks_another or self.dialect.is_contradicted(answer)

    def to_request(self, row: Row) -> Request:
        """Return the request that pushes *row*."""
        lane = row.lane
        request = requests.push(
            self.dialect,
            lane.company_id,
            lane.connection_id,
            lane.data_type,
            {},
            record_id=row.record_id,
            timeout_minutes=row.timeout_minutes,
            idempotency_key=row.idempotency_key,
        )
        return evolve(request, body=row.payload)

    async def snapshot(self, company_id: str) -> ListedPushes | None:
        """List a company's newest pushes, their keys and times alone."""
        return await self._list(company_id, None, frozenset())

    async def list_back_to(self, company_id: str, rows: Collection[Row]) -> ListedPushes | None:
        """List a company's pushes back past the snapshots of *rows*; None if that fails.

        What is in each of the snapshots is new to none of them, so its operation is not needed.
        """
        known = [frozenset(row.snapshot.keys if row.snapshot else ()) for row in rows]
        union = frozenset[str]().union(*known)
        until = union if all(known) else frozenset[str]()  # else to its end
        return await self._list(company_id, until, union.intersection(*known))

    async def _list(
        self, company_id: str, known: frozenset[str] | None, old: frozenset[str]
    ) -> ListedPushes | None:
        """List until all of *known* have been seen; None: as deep as a snapshot is."""
        found, keys = list[Operation](), set[str]()
        listed_at: int | None = None
        size, most = (SNAPSHOT, 1) if known is None else (PAGE, MOST_PAGES)
        for number in range(1, most + 1):
            answer = await self._page(company_id, number, size)
            if answer is None:
                return None
            page, at = answer
            listed_at = at if number == 1 else listed_at
            full = {} if known is None else _in_full(page, old)
            # New pushes shift the list: a page may begin with rows of the page before.
            shown = dropwhile(lambda one: one[1].key in keys, enumerate(page.rows))
            found += [full.get(at) or _KeyAlone(row.key, row.requested_on_utc) for at, row in shown]
            keys.update(row.key for row in page.rows)
            if not page.more:
                return ListedPushes(tuple(found), whole=True, at=listed_at)
            if known and known <= keys:
                break
        return ListedPushes(tuple(found), whole=False, at=listed_at)

    async def _page(
        self, company_id: str, number: int, size: int
    ) -> tuple[answers.Rows, int | None] | None:
        request = page_request(self.dialect, company_id, number, size)
        try:
            answer = await self.service.send(evolve(request, priority=Priority.PUSH))
            body = responses.check(request, answer).body
            self.hear(body)
            at = told_time(answer.headers)
            return answers.read_rows(body), None if at is None else int(at)
        except IntegrationError:
            return None
        except Exception:  # of a middleware
            logger.exception("the pushes of company %s could not be listed", company_id)
            return None

    async def read_singly(self, company_id: str, keys: Collection[str]) -> list[PushOperation]:
        """Read pushes one by one; return those that could be read."""
        found = []
        for key in keys:
            names = {"companyId": company_id, "pushOperationKey": key}
            try:
                request = requests.to_route(self.dialect, "pushes.get", **names)
                answer = responses.check(request, await self.service.send(request))
                found.append(answers.read_full(answer.body, exact=True))
            except IntegrationError:  # or the key cannot be part of a path
                continue
            except Exception:
                logger.exception("push %s could not be read", key)
        return found


def _in_full(page: answers.Rows, old: frozenset[str]) -> dict[int, PushOperation]:
    """Decode the operations of a page that may be new, by row index, as far as they can be."""
    indexes = [index for index, row in enumerate(page.rows) if row.key not in old]
    operations = page.operations(indexes, exact=True) if indexes else []
    return {index: one for index, one in zip(indexes, operations, strict=True) if one}
