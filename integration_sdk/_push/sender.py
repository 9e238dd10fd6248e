"""Takes a push to the service: it is checked, takes its reference and its turn, and is sent.

What the service has, or may have, goes on at the `PushTracker`; the others have their outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from math import inf
from typing import Final, assert_never
from uuid import uuid4

from attrs import Factory, define, evolve

from integration_sdk._http.requests import Request
from integration_sdk._push import clock, outcomes, submissions
from integration_sdk._push.driver import CANCELLED
from integration_sdk._push.places import Place, Places
from integration_sdk._push.push import Push
from integration_sdk._push.push_protocol import Delivered, PushProtocol
from integration_sdk._push.table import DUTY, Duty, IllegalTransition
from integration_sdk._push.tracker import PushTracker
from integration_sdk._store.row import Intent
from integration_sdk.errors import (
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    NotSent,
    Unauthorized,
)
from integration_sdk.models import PushRequest

WRONG_DIALECT: Final = (
    "the service answers in another dialect than the client's: it calls a push's connection by "
    "another name, and so knows no idempotency keys that could be relied on. Pass the right "
    "dialect=, such as Dialect.document(), to Client"
)
logger = logging.getLogger("integration_sdk.pushes")

CheckRecord = Callable[[PushRequest], Awaitable[None]]
"""Raises `InvalidRecord` if a request cannot be right."""


IN_A_ROW: Final = 3
"""Refusals of the key after which nothing more is sent."""


@define
class KeyRefusals:
    """Counts the answers of 401 since the last push that was accepted.

    Of pushes that were under way together only the first counts: the client may have got a new
    key from the caller since they left.
    """

    _count: int = 0
    _last: float = -inf

    def forget(self) -> None:
        """Start anew: a push was accepted."""
        self._count = 0

    def are_final(self, began: float, now: float) -> bool:
        """Count a refusal of a push that *began* then; return whether to give up."""
        if began >= self._last:
            self._count, self._last = self._count + 1, now
        return self._count >= IN_A_ROW


@define(eq=False)
class Sender:
    """Takes each push of a coordinator from submission to the service's answer.

    Attributes:
        tracker: Gets every push.
        protocol: Sends them, and asks the journal about references.
        places: One for each push that may be sent at a time.
        check: Called before a push is sent.
    """

    tracker: PushTracker
    protocol: PushProtocol
    places: Places
    check: CheckRecord | None
    _key_refusals: KeyRefusals = Factory(KeyRefusals)
    _numbers: Iterator[int] = Factory(count)

    async def push(self, push: Push, place: Place | None = None) -> None:
        """Check and send *push*, and see to it that it gets an outcome.

        *place* is the one that it has taken already, if any.

        Raises:
            Exception: Whatever ``check`` raised, but for an `IntegrationError`.
        """
        place = place or Place(self.places, push.request.company_id)
        broken: Exception | None = None
        with self.tracker.in_hand(push):
            try:
                broken = await self._push(push, place)
            finally:
                place.leave()
        if broken is not None:
            raise broken

    async def _push(self, push: Push, place: Place) -> Exception | None:
        if self.tracker.stopped:
            self.tracker.refused(push, self.tracker.stopped)
            return None
        try:
            intent_id, key = self.new_ids()
            call = submissions.to_request(
                self.tracker.dialect,
                push.request,
                push.request.record,
                key,
                comparable=self.protocol.durable and push.request.reference is not None,
            )
            intent = submissions.intend(
                push.request, call, intent_id, key, durable=self.protocol.durable
            )
            current = await self._take_up(push, intent)
        except (InvalidRecord, ConfigurationError) as error:
            self.tracker.settle(push, outcomes.invalid(push.request, error))
        except IntegrationError as error:
            self.tracker.refused(push, error)
        except Exception as error:
            self.tracker.settle(
                push, outcomes.refused(push.request, NotSent(f"not sent: {error!r}"))
            )
            return error
        except asyncio.CancelledError:
            self.tracker.refused(push, NotSent(f"not sent: {CANCELLED}"))
        else:
            if current is not None and not self._has_begun(push, current):
                await self._deliver(push, call, current, place)
        return None

    def new_ids(self) -> tuple[str, str | None]:
        """Return a new intent id, and an idempotency key (the same) if the service has them."""
        if self.tracker.dialect.idempotency_header is not None:
            key = str(uuid4())
            return key, key
        return (str(uuid4()) if self.protocol.durable else f"push-{next(self._numbers)}"), None

    async def _take_up(self, push: Push, intent: Intent) -> Intent | None:
        """Return the intent to deliver; None if *push* joined another of the same reference."""
        reference = push.request.reference if self.protocol.durable else None
        if reference is None:
            if self.check:
                await self.check(push.request)
            return intent
        holder = await self.tracker.references.take_or_join(push, intent, self.tracker.doubted)
        if holder is not None:
            self.tracker.join(holder, push)
            return None
        before = await self.protocol.recorded(reference)
        known = before and submissions.take_up(before, intent)
        if known:
            return known
        if self.check:  # only now: what is on record has passed it already
            await self.check(push.request)
        return intent if before is None else await self.protocol.replace(before, intent)

    def _has_begun(self, push: Push, intent: Intent) -> bool:
        """Continue *intent* if it has been sent before; return whether that is so."""
        match DUTY[intent.state]:
            case Duty.SEND:
                return False
            case Duty.POLL:
                self.tracker.follow(push, intent, submissions.recorded_operation(intent))
            case Duty.SEARCH:
                self.tracker.doubt(push, intent)
            case Duty.DECIDE | Duty.REST:
                outcome = submissions.standing(push.request, intent, self.tracker.dialect)
                self.tracker.settle(push, outcome)
            case other:
                assert_never(other)
        return True

    async def find(self, reference: str) -> Push | None:
        """Return the push that stands for *reference*; sends and polls nothing."""
        if not self.protocol.durable:
            raise ConfigurationError("find() looks into a journal: open one with journal=")
        if self.tracker.over:
            raise ClientClosed("this coordinator's block has been left")
        row = await self.protocol.recorded(reference)
        if holder := self.tracker.references.holder(reference):
            return holder.push
        if row is None:
            return None
        push = Push(self.protocol.request(row), intent=row.id)
        push._settle(submissions.standing(push.request, row, self.tracker.dialect))
        return push

    async def recover(self) -> list[Push]:
        """Continue what an earlier run left, and return its pushes; each holds its reference."""
        rows = [row for row in await self.protocol.recover() if DUTY[row.state] is not Duty.REST]
        pushes = [self._revived(row) for row in rows]  # all of them first: one may end another
        for push, row in zip(pushes, rows, strict=True):
            self._go_on(push, row)
        if self.tracker.doubted:
            logger.warning(
                "pushes that earlier runs left in doubt: %d; they are searched for, see `in_doubt`",
                len(self.tracker.doubted),
            )
        return pushes

    def _revived(self, row: Intent) -> Push:
        push = self.tracker.again(self.protocol.request(row))
        push.intent = row.id
        self.tracker.references.take(push, row)
        return push

    def _go_on(self, push: Push, row: Intent) -> None:
        match DUTY[row.state]:
            case Duty.SEND:
                self.tracker.tasks.start(self.resume(push, row))
            case Duty.POLL:
                self.tracker.follow(push, row, submissions.recorded_operation(row))
            case Duty.SEARCH | Duty.DECIDE:  # `protocol` searches, and tells what it finds
                self.tracker.doubted[row.id] = push
            case Duty.REST:
                raise IllegalTransition(f"intent {row.id} is {row.state}: nothing goes on")
            case other:
                assert_never(other)

    async def resume(self, push: Push, intent: Intent) -> None:
        """Send an intent that has already been recorded."""
        with self.tracker.in_hand(push):
            await self._resume(push, intent)

    async def _resume(self, push: Push, intent: Intent) -> None:
        try:
            call = submissions.to_request(
                self.tracker.dialect, push.request, {}, intent.idempotency_key
            )
        except (InvalidRecord, ConfigurationError) as error:
            self.tracker.settle(push, outcomes.invalid(push.request, error))
            return
        place = Place(self.places, push.request.company_id)
        try:
            await self._deliver(push, evolve(call, body=intent.payload), intent, place)
        finally:
            place.leave()

    async def _deliver(self, push: Push, call: Request, intent: Intent, place: Place) -> None:
        if not await self._has_turn(place):
            await self.protocol.withdraw(intent)
            self.tracker.refused(push, self.tracker.stopped or NotSent(f"not sent: {CANCELLED}"))
            return
        began = clock.now()
        done = await self.protocol.deliver(intent, call, place)
        place.leave()
        self._delivered(push, done, began)

    async def _has_turn(self, place: Place) -> bool:
        """Wait until *place* is taken; return False if nothing is to be sent any more."""
        try:
            if not place.is_taken:
                await place.take()
        except asyncio.CancelledError:
            return False
        return self.tracker.stopped is None

    def _delivered(self, push: Push, done: Delivered, began: float) -> None:
        match DUTY[done.intent.state]:
            case Duty.POLL:
                self._key_refusals.forget()
                self.tracker.tell("sent", push)
                own = done.operation or submissions.recorded_operation(done.intent)
                self.tracker.follow(push, done.intent, own)
            case Duty.SEARCH | Duty.DECIDE:
                lost = "the answer to %s was lost; the company's pushes are searched for it: %s"
                logger.warning(lost, done.intent, done.error)
                self.tracker.doubt(push, done.intent)
            case Duty.REST:
                error = done.error or NotSent("not sent")
                for_all = done.held_back or self._is_locked_out(error, began)
                self.tracker.refused(push, error, for_all=for_all)
            case Duty.SEND:
                raise IllegalTransition(f"intent {done.intent.id} was sent and is still to be")
            case other:
                assert_never(other)
        if self.protocol.driver.pushes.speaks_another:
            self.tracker.stop(ConfigurationError(WRONG_DIALECT))
        if self.tracker.over:
            self.tracker.let_go()

    def _is_locked_out(self, error: IntegrationError, began: float) -> bool:
        refused = isinstance(error, Unauthorized)
        return refused and self._key_refusals.are_final(began, clock.now())
