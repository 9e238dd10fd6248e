"""Polls a single push or a list of pushes, and reports the result.

`_push` decides what to poll. This module sends the request, reads the answer, and
handles errors: it tries again later, stops using the list, or gives up one push or all pushes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from attrs import Factory, define, evolve, field

from integration_sdk._http import requests, responses
from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Fetch, Response
from integration_sdk._http.statuses import Meaning, Row, Scope, row
from integration_sdk._push import answers, clock
from integration_sdk._push.answers import seconds_until
from integration_sdk._push.open_pushes import (
    ListPoll,
    OpenPush,
    Poll,
    PolledCompany,
    SinglePoll,
    Trouble,
)
from integration_sdk._push.schedule import Schedule
from integration_sdk._push.wire import page_request
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    MalformedResponse,
    NotFound,
    ResponseTooLarge,
    TransportError,
)
from integration_sdk.models import PushOperation, PushStatus

if TYPE_CHECKING:
    from integration_sdk._push.poller import Poller

logger = logging.getLogger("integration_sdk.pushes")
NOT_FOUND: Final = 404
NEWBORN: Final = 60.0
"""Seconds for which a push that was acknowledged may be answered with 404."""
UNREADABLE: Final = (MalformedResponse, ResponseTooLarge)
"""Errors that may persist when the request is repeated, so they are logged as warnings."""


@define(eq=False)
class PollRequests:
    """Carries out the polls of a schedule.

    Attributes:
        send: Sends a request.
        dialect: The version of the service.
        schedule: Gets the result of each poll.
        poller: Gets the states of pushes.
        exact: Whether fractions are read as Decimal.
        never_told: Final states for which the service sends no details, even if a push is read
            singly.
    """

    send: Fetch
    dialect: Dialect
    schedule: Schedule
    poller: Poller
    exact: bool = field(default=False, kw_only=True)
    never_told: set[PushStatus] = Factory(set)

    async def carry_out(self, poll: Poll) -> None:
        """Carry out *poll* and report the result to schedule and poller."""
        if isinstance(poll, SinglePoll):
            await self._read(poll)
        else:
            await self._list(poll)

    # One push

    async def _read(self, poll: SinglePoll) -> None:
        names = {"companyId": poll.company.id, "pushOperationKey": poll.push.key}
        try:
            request = requests.to_route(self.dialect, "pushes.get", **names)
        except ConfigurationError as error:  # the key cannot be part of a path
            self.poller.lose(poll.push, error)
            self.schedule.finish(poll, clock.now())
            return
        answer = await self._ask(poll, request)
        if answer is None:
            return
        if not answer.ok:
            self._not_read(poll, request, answer)
            return
        try:
            operation = self._read_own(answer, poll.push.key)
        except MalformedResponse as error:
            self._failed(poll, error)
            return
        if operation.is_final and _lacks_details(operation):
            self.never_told.add(operation.status)
        self.poller.tell(poll.push, operation)
        self._succeeded(poll)

    def _read_own(self, answer: Response, key: str) -> PushOperation:
        try:
            operation = answers.read_full(answer.body, exact=self.exact)
        except MalformedResponse as problem:
            operation = answers.read_brief(answer.body, problem)
            level = logging.WARNING if operation.is_final else logging.DEBUG
            logger.log(level, "push %s is %s. %s", key, operation.status, operation.error_message)
        if operation.key != key:
            raise MalformedResponse(f"asked for push {key}, a cache answered with {operation.key}")
        return operation

    def _not_read(self, poll: SinglePoll, request: Request, answer: Response) -> None:
        error = responses.read_error(request, answer)
        match row(answer.status):
            case Row(scope=Scope.KEY | Scope.ACCOUNT):
                self._refused(poll, error)
            case Row(read=Meaning.REFUSED) if answer.status == NOT_FOUND and _may_lag(poll.push):
                self._note(poll, error)
                self.schedule.not_shown(poll, clock.now())
            case Row(read=Meaning.REFUSED):
                self.poller.lose(poll.push, error)
                self.schedule.finish(poll, clock.now())
            case _:
                self._failed(poll, error, answer)

    # A list

    async def _list(self, poll: ListPoll) -> None:
        more = True
        while more:
            request = page_request(self.dialect, poll.company.id, poll.page, poll.page_size)
            if poll.page > 1:
                self.poller.spend()
            answer = await self._ask(poll, request)
            if answer is None:
                return
            if not answer.ok:
                self._not_listed(poll, request, answer)
                return
            try:
                more = self._take(poll, answers.read_rows(answer.body))
            except MalformedResponse as error:
                self._not_readable(poll, error)
                return
        self._succeeded(poll)
        self.poller.listed(poll.company.id)

    def _take(self, poll: ListPoll, page: answers.Rows) -> bool:
        news, more = self.schedule.listed(
            poll, page.rows, more=page.more, returned_size=page.page_size
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

    def _not_listed(self, poll: ListPoll, request: Request, answer: Response) -> None:
        error = responses.read_error(request, answer)
        match row(answer.status):
            case Row(scope=Scope.KEY | Scope.ACCOUNT):
                self._refused(poll, error)
            case Row(read=Meaning.REFUSED):
                logger.info("%s The company's pushes are polled singly.", error)
                self.schedule.unlistable(poll, clock.now())
            case _:
                self._failed(poll, error, answer)

    def _not_readable(self, poll: ListPoll, error: MalformedResponse) -> None:
        """Repeat the poll; if the list was unreadable before, one of its pushes is: do without."""
        before = poll.company.trouble
        if before is not None and isinstance(before.error, MalformedResponse):
            logger.warning("%s The company's pushes are polled singly.", error)
            self.schedule.unlistable(poll, clock.now())
        else:
            self._failed(poll, error)

    # Either

    async def _ask(self, poll: Poll, request: Request) -> Response | None:
        try:
            return await self.send(evolve(request, priority=Priority.POLL))
        except (TransportError, ApiError) as error:
            self._failed(poll, error)
        except ClientClosed as error:
            self._refused(poll, error)
        return None

    def _succeeded(self, poll: Poll) -> None:
        _target(poll).trouble = None
        self.schedule.finish(poll, clock.now())

    def _failed(self, poll: Poll, error: IntegrationError, answer: Response | None = None) -> None:
        """Repeat the poll later: when the service says, or else with growing pauses."""
        self._note(poll, error)
        wait = seconds_until(error, answer.received_at if answer else clock.unix_time())
        self.schedule.failed(poll, clock.now(), wait=wait or 0.0)

    def _note(self, poll: Poll, error: IntegrationError) -> None:
        target = _target(poll)
        before, target.trouble = target.trouble, Trouble(poll.started, error)
        is_news = before is None or not isinstance(before.error, UNREADABLE)
        level = logging.WARNING if is_news and isinstance(error, UNREADABLE) else logging.DEBUG
        logger.log(level, "polling %s failed, and is repeated: %s", target, error)

    def _refused(self, poll: Poll, error: IntegrationError) -> None:
        """Give up all pushes, because of the account, the API key or the client."""
        self.poller.lose_all(error)
        self.schedule.finish(poll, clock.now())


def _target(poll: Poll) -> OpenPush | PolledCompany:
    return poll.push if isinstance(poll, SinglePoll) else poll.company


def _lacks_details(operation: PushOperation) -> bool:
    """Whether an operation lacks the data of a Success, or the reasons of a Failed push."""
    if operation.status is PushStatus.SUCCESS:  # with a message: its data cannot be read
        return operation.data is None and not operation.error_message
    failed = operation.status is PushStatus.FAILED
    return failed and operation.validation is None and operation.error_message is None


def _may_lag(push: OpenPush) -> bool:
    """Whether a 404 may come from reads that lag behind: one alone says nothing of a known push."""
    if not push.exists:
        return False
    before = push.trouble.error if push.trouble is not None else None
    return not isinstance(before, NotFound) or clock.now() - push.born < NEWBORN
