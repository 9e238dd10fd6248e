"""One transmission: a mark, a turn, on record as SENDING, sent once, and what the answer proves.

Carriers of a company take pushes from its queue. One of them waits for its turn; once it has it,
another waits. So there are as many as the session lets calls of the company be under way, and one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context
from functools import partial
from math import inf
from typing import Any, Final
from uuid import uuid4

from attrs import define
from msgspec import structs

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._http.statuses import OFFLINE, Scope
from integration_sdk._push import outcomes
from integration_sdk._push.holder import LEFT_BEHIND, UNTIL_BACK, Holder
from integration_sdk._push.push import Company, Live, about
from integration_sdk._push.table import Event, SendResult, classify
from integration_sdk._push.wire import read_reply
from integration_sdk._store.row import Evidence, Row, State, folded
from integration_sdk.errors import (
    AnswerLost,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    JournalError,
    NotSent,
    StoreUnavailable,
    Unauthorized,
)
from integration_sdk.models import OutcomeStatus

logger = logging.getLogger("integration_sdk.pushes")

NOT_THE_SERVICE: Final = (
    "{} answers in a row were not the service's own (the last: {}). Check base_url=, and whether a "
    "proxy or login page stands between; then push again"
)
STRANGE_ANSWERS: Final = 10
"""Answers in a row that are not the service's own after which nothing more is sent."""
REFUSED_KEYS: Final = 3
"""Refusals of the key in a row after which nothing more is sent."""
REPLAY_WINDOW: Final = 3600.0
"""Seconds for which an idempotency key is relied upon. Assumed: answers are kept for 90 minutes."""
MARK_AGE: Final = 600.0
"""Seconds after which a company is listed again before pushes are sent."""
NO_MARK_AGE: Final = 30.0
"""The same after a failed listing; without a mark a push in doubt cannot be resolved."""


class Moved(Exception):
    """Another worker has the row now, or another row stands for the push."""


@define(eq=False)
class Carriers:
    """Sends the pushes of a holder."""

    holder: Holder
    _refused_keys: tuple[int, float] = (0, -inf)
    _strange: int = 0

    def __attrs_post_init__(self) -> None:
        self.holder.pump = self.pump

    def pump(self, company: Company) -> None:
        """Have a carrier of the company wait for the next turn, if there is anything to send."""
        if company.queue and company.line is None:
            company.line = self.holder.start(self._carry(company))

    async def _carry(self, company: Company) -> None:
        """Send what is queued, one push after another; while one is away, another carrier waits."""
        me = asyncio.current_task()
        try:
            while company.queue and company.line is me:
                live = company.queue.popleft()
                live.is_carried = True
                try:
                    await self._carry_one(live)
                except Moved:
                    pass
                except asyncio.CancelledError:
                    stopped = None if self.holder.closing else self.holder.stopped
                    self.holder.send_no_more(live, stopped or NotSent(LEFT_BEHIND))
                    raise
                finally:
                    live.is_carried = False
                    if company.line is None and company.queue:
                        company.line = me
        finally:
            if company.line is me:
                company.line = None
            self.pump(company)

    async def _carry_one(self, live: Live) -> None:
        row, company, began = live.row, live.company, asyncio.get_running_loop().time()
        try:
            if self.holder.check is not None and row.version <= 0:  # not sent or taken over before
                await self.holder.check(live.pushes[0].request)
            if began >= company.mark_until:
                # What is above the mark later, is new.
                listing = await self.holder.wire.newest(company.id)
                company.mark = listing.mark() if listing else None
                company.mark_until = began + (MARK_AGE if company.mark else NO_MARK_AGE)
            if row.http_status == OFFLINE and row.idempotency_key and row.state is State.QUEUED:
                # Under the same key the service would only repeat its 503.
                row = live.row = structs.replace(row, idempotency_key=str(uuid4()))
            call = live.call or self.holder.wire.to_request(row)
        except Exception as problem:
            error = _typed(problem, row, left=False)
            if outcomes.ends_all(error):
                self.holder.stop(error)
            is_wrong = isinstance(error, InvalidRecord | ConfigurationError)
            how = OutcomeStatus.INVALID if is_wrong else OutcomeStatus.REJECTED
            self.holder.leave(live, error, how)
            return
        reply = await self._send(live, call.with_idempotency_key(row.idempotency_key))
        if isinstance(reply, Response) and reply.ok:
            self.holder.wire.note_dialect(reply.body)
        numbers = self.holder.polls.numbers
        result = read_reply(call, reply, unix_time=time.time(), numbers=numbers)
        await self._answered(live, result)
        self._look_at(result, began)

    async def _send(self, live: Live, call: Request) -> Reply:
        """Send *live*, on record first."""
        try:
            return await self.holder.wire.service.send_once(
                call, before=partial(self._record_sending, live)
            )
        except Moved:
            raise
        except Exception as error:
            unsent = isinstance(error, NotSent | ClientClosed | JournalError)
            left = live.row.state is State.SENDING and not unsent
            phase = Phase.MAY_HAVE_LEFT if left else Phase.NEVER_LEFT
            return Failure(phase, _typed(error, live.row, left=left))
        except asyncio.CancelledError:
            if live.row.state is State.SENDING:
                why = "its task was cancelled while it was being sent"
                self.holder.note(live, Event.LOST, error=why)
            raise

    async def _record_sending(self, live: Live) -> None:
        live.company.line = None  # its turn has come; another carrier waits for the next
        self.pump(live.company)
        if self.holder.stopped:
            raise NotSent(LEFT_BEHIND)
        if not self.holder.holds(live):
            raise Moved
        if self.holder.journal and self.holder.journal.silent_for > self.holder.journal.lease - 1:
            await self.holder.beat()  # another may have claimed the row meanwhile
        row, facts = live.row, dict[str, Any](http_status=None, error=None)
        if row.state is State.LOST:
            facts["replays"] = row.replays + 1
        else:
            facts["mark"] = live.company.mark
        if not await self.holder.step(live, Event.SENT, **facts):
            raise Moved
        live.sent_at = live.sent_at or (asyncio.get_running_loop().time(), time.time())

    async def _answered(self, live: Live, result: SendResult) -> None:
        """Record what a transmission proves, and go on."""
        row, holder = live.row, self.holder
        live.tries += 1
        again = live.tries < holder.retry.attempts and not holder.stopped
        again = again and (result.retry_after or 0.0) <= holder.options.longest_pause
        if row.state is not State.SENDING:  # it got no turn
            if isinstance(result.error, JournalError):
                self.holder.stop(result.error)
            elif again:
                self._send_later(live, result)
                return
            self.holder.send_no_more(live, result.error or NotSent(LEFT_BEHIND))
            return
        event = classify(
            result,
            key_is_known=result.key is not None and self._is_known(row, result.key),
            replay=row.replays > 0,
        )
        for_now = result.phase is Phase.NEVER_LEFT or statuses.scope_of(result.status) is Scope.LOAD
        if event is Event.REFUSED and again and for_now:
            event = Event.LATER
        said: dict[str, Any] = {"http_status": result.status, "error": result.said}
        key: dict[str, Any] = {}
        if event is Event.ANSWERED:
            key = {"key": result.key, "evidence": Evidence.OWN_ANSWER}
        is_recorded = await self._record(live, event, result, **said, **key)
        if key and not is_recorded and live.row is row and self.holder.holds(live):
            event = Event.LOST  # its key is another row's, as from a cache
            is_recorded = await self._record(live, event, result, **said)
        if not is_recorded:
            return
        if event is Event.LATER or (event is Event.LOST and again and self._may_replay(live)):
            self._send_later(live, result)
            return
        if event is Event.LOST:
            lost = "the answer to %s was lost; the company's pushes are searched for it: %s"
            logger.warning(lost, live.row, outcomes.lost_by(live.row), extra=about(live.row))
        self.holder.go_on(live, result.operation or result.error)

    async def _record(self, live: Live, event: Event, result: SendResult, **facts: Any) -> bool:
        """Record what an answer proves, when the database is back; return as `Holder.step`.

        It is not told before: another worker may push under the reference of what was refused.
        """
        holder = self.holder
        while True:
            try:
                return await holder.step(live, event, **facts)
            except JournalError as error:
                holder.stop(error)
                if not isinstance(error, StoreUnavailable) or holder.closing:
                    holder.drop(live)  # the next run searches for it
                    for push in live.pushes:
                        push.operation = result.operation
                        holder.fail(push, OutcomeStatus.PENDING, error)
                    return False
                await asyncio.sleep(UNTIL_BACK)

    def _is_known(self, row: Row, key: str) -> bool:
        """Whether a key was there before we sent, or belongs to another row."""
        listed = row.mark is not None and key in row.mark.keys
        return listed or folded(key) in row.earlier_keys or self.holder.owns(key)

    def _may_replay(self, live: Live) -> bool:
        wire = self.holder.wire
        keeps_key = wire.replays and live.row.idempotency_key is not None
        if not keeps_key or live.sent_at is None or wire.speaks_another:
            return False
        loop, wall = live.sent_at  # the loop's clock stands still while a machine sleeps
        passed = max(asyncio.get_running_loop().time() - loop, time.time() - wall)
        return passed < REPLAY_WINDOW

    def _send_later(self, live: Live, result: SendResult) -> None:
        self.holder.room.set()
        pause = self.holder.retry.pause(
            live.tries - 1,
            lambda limit: limit * self.holder.chance(),
            throttled=True,
            floor=result.retry_after or 0.0,
        )
        loop = asyncio.get_running_loop()
        live.later = loop.call_later(pause, self.holder.queue, live, context=Context())

    def _look_at(self, result: SendResult, began: float) -> None:
        """Stop sending if the answer concerns every other push as well."""
        error = result.error
        if result.phase is Phase.ANSWERED:
            self._strange = 0 if result.is_services_own else self._strange + 1
        if result.operation is not None:
            self._refused_keys = (0, -inf)
        elif isinstance(error, Unauthorized) and began >= self._refused_keys[1]:
            # Of pushes under way together the first counts: the key may have been renewed since.
            now = asyncio.get_running_loop().time()
            self._refused_keys = (self._refused_keys[0] + 1, now)
        if error is None or result.phase is Phase.MAY_HAVE_LEFT:
            return
        too_long = (result.retry_after or 0.0) > self.holder.options.longest_pause
        locked_out = self._refused_keys[0] >= REFUSED_KEYS and isinstance(error, Unauthorized)
        if self._strange >= STRANGE_ANSWERS:
            self._strange = 0
            self.holder.stop(ConfigurationError(NOT_THE_SERVICE.format(STRANGE_ANSWERS, error)))
        elif locked_out or outcomes.ends_all(error) or (self.holder.runs and too_long):
            self.holder.stop(error)  # a run would wait for a pause that is too long


def _typed(error: Exception, row: Row, *, left: bool) -> IntegrationError:
    """Return *error* as one of the SDK's: a middleware may raise anything.

    *left*: Whether the push may have been sent.
    """
    if isinstance(error, IntegrationError):
        return error
    logger.error("sending %s failed", row, exc_info=error, extra=about(row))
    kind, how = (AnswerLost, "the answer was lost") if left else (NotSent, "not sent")
    return kind(f"{how}: {error!r}")
