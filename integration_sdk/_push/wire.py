"""The service as pushes see it: a row as a request, lists down to a mark, and single pushes.

Lists and single pushes are read here as evidence. Fractions are then read exactly, since records
are told apart by every digit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from itertools import dropwhile
from typing import Final, Protocol

from attrs import define, evolve, field

from integration_sdk._http import requests, responses
from integration_sdk._http.hints import told_time
from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Response
from integration_sdk._push import answers
from integration_sdk._push.evidence import Listing
from integration_sdk._push.table import CREATES
from integration_sdk._store.row import Row, State
from integration_sdk.dialect import Dialect
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

FOR_A_MARK: Final = 200
"""Pushes that are listed before a company's first push is sent."""
PAGE: Final = 500
MOST_PAGES: Final = 200


class Service(Protocol):
    """The service, reached by the client's session: gate, rate, retries and key included."""

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
        """Send *request* once; *before* is awaited when its turn has come. Raises as `send`."""
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


def _key_alone(listed: answers.Listed) -> PushOperation:
    """Return a push that was there before, or that cannot be read: then it may be any."""
    return PushOperation(
        push_operation_key=listed.key,
        company_id="",
        status=PushStatus.UNKNOWN,
        requested_on_utc=listed.requested_on_utc,
    )


@define(eq=False)
class Wire:
    """The service, for the pushes of one coordinator.

    Attributes:
        speaks_another: Whether the service has answered in another dialect.
    """

    service: Service
    dialect: Dialect
    speaks_another: bool = field(init=False, default=False)

    def note_dialect(self, answer: bytes) -> None:
        """Note which dialect an *answer* with pushes is of."""
        self.speaks_another = self.speaks_another or self.dialect.is_contradicted(answer)

    def to_request(self, row: Row) -> Request:
        """Return the request that pushes *row*."""
        ids = row.lane.company_id, row.lane.connection_id, row.lane.data_type
        if row.method == "DELETE":
            return requests.delete(self.dialect, *ids, str(row.record_id))
        if row.content_type is not None:
            attach = requests.attach(self.dialect, *ids, str(row.record_id))
            return evolve(attach, body=row.payload, content_type=row.content_type)
        request = requests.push(
            self.dialect,
            *ids,
            {},
            record_id=None if row.method == CREATES else row.record_id,
            timeout_minutes=row.timeout_minutes,
            idempotency_key=row.idempotency_key,
        )
        return evolve(request, body=row.payload)

    async def newest(self, company_id: str) -> Listing | None:
        """List a company's newest pushes, their keys and times alone; None if that fails."""
        return await self._list(company_id, None, frozenset())

    async def list_back_to(self, company_id: str, rows: Collection[Row]) -> Listing | None:
        """List a company's pushes back past the marks of *rows*; None if that fails.

        What is in each of the marks is new to none of them, so its operation is not needed.
        A row without a mark that was never sent is looked for among the newest.
        """
        sent = [row for row in rows if row.state is not State.QUEUED]
        if not sent:
            return await self._list(company_id, None, frozenset(), in_full=True)
        marks = [frozenset(row.mark.keys if row.mark else ()) for row in sent]
        union = frozenset[str]().union(*marks)
        until = union if all(marks) else frozenset[str]()  # else to its end
        old = union.intersection(*marks) if len(sent) == len(rows) else frozenset[str]()
        return await self._list(company_id, until, old)

    async def _list(
        self,
        company_id: str,
        known: frozenset[str] | None,
        old: frozenset[str],
        *,
        in_full: bool = False,
    ) -> Listing | None:
        """List until all of *known* have been seen, or to the end; None: as deep as a mark is."""
        found, keys = list[PushOperation](), set[str]()
        listed_at: int | None = None
        size, most = (FOR_A_MARK, 1) if known is None else (PAGE, MOST_PAGES)
        for number in range(1, most + 1):
            answer = await self._page(company_id, number, size)
            if answer is None:
                return None
            page, at = answer
            listed_at = at if number == 1 else listed_at
            full = _in_full(page, old) if in_full or known is not None else {}
            # New pushes shift the list: a page may begin with rows of the page before.
            shown = dropwhile(lambda one: one[1].key in keys, enumerate(page.rows))
            found += [full.get(at) or _key_alone(row) for at, row in shown]
            keys.update(row.key for row in page.rows)
            if not page.more:
                return Listing(tuple(found), whole=True, at=listed_at)
            if known and known <= keys:
                break
        return Listing(tuple(found), whole=False, at=listed_at)

    async def _page(
        self, company_id: str, number: int, size: int
    ) -> tuple[answers.PushPage, int | None] | None:
        request = page_request(self.dialect, company_id, number, size)
        try:
            answer = await self.service.send(evolve(request, priority=Priority.PUSH))
            body = responses.check(request, answer).body
            self.note_dialect(body)
            at = told_time(answer.headers)
            return answers.read_page(body), None if at is None else int(at)
        except IntegrationError as error:
            logger.debug("the pushes of company %s could not be listed: %s", company_id, error)
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
            except IntegrationError as error:  # or the key cannot be part of a path
                logger.debug("push %s could not be read: %s", key, error)
            except Exception:
                logger.exception("push %s could not be read", key)
        return found


def _in_full(page: answers.PushPage, old: frozenset[str]) -> dict[int, PushOperation]:
    """Decode the operations of a page that may be new, by row index, as far as they can be."""
    indexes = [index for index, row in enumerate(page.rows) if row.key not in old]
    operations = page.operations(indexes, exact=True) if indexes else []
    return {index: one for index, one in zip(indexes, operations, strict=True) if one}
