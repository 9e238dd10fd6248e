"""Polls a single push or a list of pushes, and reports the result.

`_sansio.polling` decides what to poll. This module sends the request, reads the answer, and
handles errors: it tries again later, stops using the list, or gives up one push or all pushes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from attrs import Factory, define, evolve, field

from integration_sdk._coordinator import clock
from integration_sdk._coordinator.push_list import SendRequest, page_request
from integration_sdk._sansio import requests, responses
from integration_sdk._sansio.polling.open_pushes import (
    Company,
    ListLook,
    Look,
    OpenPush,
    SingleLook,
    Trouble,
)
from integration_sdk._sansio.polling.polling import Schedule
from integration_sdk._sansio.pushing import rows
from integration_sdk._sansio.pushing.replies import seconds_until
from integration_sdk._sansio.requests import Priority, Request
from integration_sdk._sansio.responses import Response
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    MalformedResponse,
    ResponseTooLarge,
    TransportError,
)
from integration_sdk.models import PushOperation, PushStatus

if TYPE_CHECKING:
    from integration_sdk._coordinator.poller import Poller

logger = logging.getLogger("integration_sdk.pushes")
NEWBORN: Final = 60.0
"""Seconds for which a push that was acknowledged may be answered with 404."""
UNREADABLE: Final = (MalformedResponse, ResponseTooLarge)
"""Errors that may persist when the request is repeated, so they are logged as warnings."""


@define(eq=False)
class Looks:
    """Carries out the looks of a schedule.

    Attributes:
        send: Sends a request.
        dialect: The version of the service.
        schedule: Gets the result of each look.
        poller: Gets the states of pushes.
        exact: Whether fractions are read as Decimal.
        never_told: Final states for which the service sends no details, even if a push is read
            singly.
    """

    send: SendRequest
    dialect: Dialect
    schedule: Schedule
    poller: Poller
    exact: bool = field(default=False, kw_only=True)
    never_told: set[PushStatus] = Factory(set)

    async def look(self, look: Look) -> None:
        """Carry out *look* and report the result to schedule and poller."""
        if isinstance(look, SingleLook):
            await self._read(look)
        else:
            await self._list(look)

    # One push

    async def _read(self, look: SingleLook) -> None:
        names = {"companyId": look.company.id, "pushOperationKey": look.push.key}
        try:
            request = requests.to_route(self.dialect, "pushes.get", **names)
        except ConfigurationError as error:  # the key cannot be part of a path
            self.poller.lose(look.push, error)
            self.schedule.finish(look, clock.now())
            return
        answer = await self._ask(look, request)
        if answer is None:
            return
        if not answer.ok:
            self._not_read(look, request, answer)
            return
        try:
            operation = self._read_own(answer, look.push.key)
        except MalformedResponse as error:
            self._failed(look, error)
            return
        if operation.is_final and _lacks_details(operation):
            self.never_told.add(operation.status)
        self.poller.tell(look.push, operation)
        self._succeeded(look)

    def _read_own(self, answer: Response, key: str) -> PushOperation:
        try:
            operation = rows.read_full(answer.body, exact=self.exact)
        except MalformedResponse as problem:
            operation = rows.read_brief(answer.body, problem)
            level = logging.WARNING if operation.is_final else logging.DEBUG
            logger.log(level, "push %s is %s. %s", key, operation.status, operation.error_message)
        if operation.key != key:
            raise MalformedResponse(f"asked for push {key}, a cache answered with {operation.key}")
        return operation

    def _not_read(self, look: SingleLook, request: Request, answer: Response) -> None:
        error = responses.read_error(request, answer)
        newborn = look.push.exists and clock.now() - look.push.born < NEWBORN
        if answer.status in {401, 402}:
            self._refused(look, error)
        elif answer.status in {400, 403, 405} or (answer.status == 404 and not newborn):
            self.poller.lose(look.push, error)
            self.schedule.finish(look, clock.now())
        else:
            self._failed(look, error, answer)

    # A list

    async def _list(self, look: ListLook) -> None:
        more = True
        while more:
            request = page_request(self.dialect, look.company.id, look.page, look.page_size)
            answer = await self._ask(look, request)
            if answer is None:
                return
            if not answer.ok:
                self._not_listed(look, request, answer)
                return
            try:
                more = self._take(look, rows.read_rows(answer.body))
            except MalformedResponse as error:
                self._not_readable(look, error)
                return
        self._succeeded(look)
        self.poller.listed(look.company.id)

    def _take(self, look: ListLook, page: rows.Rows) -> bool:
        news, more = self.schedule.listed(
            look, page.rows, more=page.more, returned_size=page.page_size
        )
        indexes = [index for _, index in news]
        operations = page.operations(indexes, exact=self.exact) if news else []
        for (push, _), operation in zip(news, operations, strict=True):
            if operation is None or self._says_too_little(push, operation):
                self.schedule.single_out(push)
            else:
                self.poller.tell(push, operation)
        return more

    def _says_too_little(self, push: OpenPush, operation: PushOperation) -> bool:
        """Whether reading the push singly may return details that are wanted."""
        if not _lacks_details(operation) or operation.status in self.never_told:
            return False
        return operation.status is not PushStatus.SUCCESS or any(
            one.fetch_data for one in push.followers
        )

    def _not_listed(self, look: ListLook, request: Request, answer: Response) -> None:
        error = responses.read_error(request, answer)
        if answer.status in {401, 402}:
            self._refused(look, error)
        elif answer.status in {400, 403, 404, 405}:
            logger.info("%s The company's pushes are polled singly.", error)
            self.schedule.unlistable(look, clock.now())
        else:
            self._failed(look, error, answer)

    def _not_readable(self, look: ListLook, error: MalformedResponse) -> None:
        """Repeat the look; if the list was unreadable before, one of its pushes is: do without."""
        before = look.company.trouble
        if before is not None and isinstance(before.error, MalformedResponse):
            logger.warning("%s The company's pushes are polled singly.", error)
            self.schedule.unlistable(look, clock.now())
        else:
            self._failed(look, error)

    # Either

    async def _ask(self, look: Look, request: Request) -> Response | None:
        try:
            return await self.send(evolve(request, priority=Priority.POLL))
        except (TransportError, ApiError) as error:
            self._failed(look, error)
        except ClientClosed as error:
            self._refused(look, error)
        return None

    def _succeeded(self, look: Look) -> None:
        _target(look).trouble = None
        self.schedule.finish(look, clock.now())

    def _failed(self, look: Look, error: IntegrationError, answer: Response | None = None) -> None:
        """Repeat the look later: when the service says, or else with growing pauses."""
        target = _target(look)
        before, target.trouble = target.trouble, Trouble(look.started, error)
        is_news = before is None or not isinstance(before.error, UNREADABLE)
        level = logging.WARNING if is_news and isinstance(error, UNREADABLE) else logging.DEBUG
        logger.log(level, "polling %s failed, and is repeated: %s", target, error)
        wait = seconds_until(error, answer.received_at if answer else clock.unix_time())
        self.schedule.failed(look, clock.now(), wait=wait or 0.0)

    def _refused(self, look: Look, error: IntegrationError) -> None:
        """Give up all pushes, because of the account, the API key or the client."""
        self.poller.lose_all(error)
        self.schedule.finish(look, clock.now())


def _target(look: Look) -> OpenPush | Company:
    return look.push if isinstance(look, SingleLook) else look.company


def _lacks_details(operation: PushOperation) -> bool:
    """Whether an operation lacks the data of a Success, or the reasons of a Failed push."""
    if operation.status is PushStatus.SUCCESS:  # with a message: its data cannot be read
        return operation.data is None and not operation.error_message
    failed = operation.status is PushStatus.FAILED
    return failed and operation.validation is None and operation.error_message is None
