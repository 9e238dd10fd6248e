"""The push coordinator: sends many records and polls for their outcomes together.

A push is recorded and sent once (`sending`), moved from state to state (`dispatcher`), and polled
together with all others (`poller`). An outcome is a value, not an exception, whatever the service
decided. `Coordinator.run` (`run`) adds workers that read the caller's iterable.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args, overload

from attrs import evolve

from integration_sdk._checks import is_number, one_of, seconds, true_or_false, whole_number
from integration_sdk._http import requests
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.dispatcher import Dispatcher
from integration_sdk._push.evidence import in_lane
from integration_sdk._push.handles import Handles
from integration_sdk._push.outcomes import checked
from integration_sdk._push.poller import Poller
from integration_sdk._push.push import Push, PushEvent, PushProgress
from integration_sdk._push.run import RaiseOn, Refusals, Run
from integration_sdk._push.search import Search
from integration_sdk._push.sending import CheckRecord, Policy, Sender
from integration_sdk._push.table import Event, after
from integration_sdk._push.tasks import log_failure, loop_time
from integration_sdk._push.wire import Service, Wire
from integration_sdk._store.database import shown
from integration_sdk._store.row import Evidence, KeyClaimed, Row, Stale, State
from integration_sdk._store.store import Store, is_path, is_url
from integration_sdk._store.waiting import to_the_end
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ClientClosed, ConfigurationError, fresh_copy
from integration_sdk.models import OutcomeStatus, PushRequest, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

Leave = Literal["drain", "detach", "cancel"]
InDoubt = Literal["ask", "resend"]
SILENCE: Final = 300.0
"""Seconds that leaving the block waits before it says so; from then on twice as long each time."""
FIVE_TIMES: Final = RetryPolicy(attempts=5)


class Coordinator:
    """Pushes many records and reports the outcome of each. Use it as ``async with``.

    Create it with `Client.coordinator`, which explains the options.

    Attributes:
        detached: Keys of pushes that are no longer followed. They continue at the service.
        recovered: Pushes that an earlier run left in the journal and this one continues.
    """

    def __init__(
        self,
        service: Service,
        poller: Poller,
        dialect: Dialect,
        *,
        base_url: str = "",
        journal: str | os.PathLike[str] | Store | None = None,
        exclusive: bool = False,
        max_open: int = 2000,
        refusals: Refusals | None = None,
        check: CheckRecord | None = None,
        leave: Leave = "drain",
        on_event: Callable[[PushEvent], None] | None = None,
        fetch_data: bool = False,
        patience: float = 30.0,
        in_doubt: InDoubt = "ask",
        max_pause: float | None = 600.0,
        retry: RetryPolicy = FIVE_TIMES,
        chance: Callable[[], float] = random.random,
    ) -> None:
        one_of("leave", leave, get_args(Leave))
        one_of("in_doubt", in_doubt, get_args(InDoubt))
        true_or_false("exclusive", exclusive)
        true_or_false("fetch_data", fetch_data)
        whole_number("max_open", max_open, 1, 10**9)
        if not (is_number(patience) and 0 <= patience < math.inf):
            raise ConfigurationError(f"patience must be 0 seconds or more, not {patience!r}")
        seconds("max_pause", max_pause)
        if not (on_event is None or callable(on_event)):
            raise ConfigurationError(f"on_event must be callable, or None, not {on_event!r}")
        if not (isinstance(journal, Store | None) or is_path(journal) or is_url(journal)):
            raise ConfigurationError(
                "journal must be the path of a file, the postgresql:// URL of a database, a Store, "
                f"or None, not {shown(journal)}"
            )
        self._service, self._poller, self._dialect = service, poller, dialect
        self._base_url = base_url
        self._store = journal if isinstance(journal, Store) else Store(journal)
        self._store_is_ours = self._store is not journal
        self._policy = Policy(
            exclusive=exclusive,
            refuses_with_503=dialect.refuses_with_503,
            path_names=dialect.path_names,
            replays=dialect.idempotency_header is not None,
            retry=retry,
            longest_pause=math.inf if max_pause is None else max_pause,
            patience=patience,
            resends=in_doubt == "resend",
        )
        self._chance, self._refusals = chance, refusals
        self._check, self._fetch_data, self._on_event = check, fetch_data, on_event
        self._leave: Leave = leave
        self._max_open, self._places = max_open, asyncio.Semaphore(max_open)
        self._dispatcher: Dispatcher | None = None
        self.detached: tuple[str, ...] = ()
        self.recovered: tuple[Push, ...] = ()

    def __repr__(self) -> str:
        return f"<Coordinator with {self._store}>"

    # The block

    async def __aenter__(self) -> Self:
        if self._dispatcher is not None and not self._dispatcher.over:
            raise ConfigurationError("this coordinator is open already: use it in its block")
        try:
            store = await self._store.lend(base_url=self._base_url, dialect=self._dialect.name)
        except BaseException:
            if self._store_is_ours:
                await to_the_end(asyncio.ensure_future(self._store.aclose()))
            raise
        d = Dispatcher(
            store,
            Wire(self._service, self._dialect),
            self._poller,
            Handles(self._on_event),
            fetch_data=self._fetch_data,
            exact=self._poller.exact,
        )
        d.sender = Sender(d, self._policy, self._check, self._chance)
        d.search = Search(d, self._policy)
        try:
            self.recovered = tuple(await d.companies.recover())
        except BaseException:
            await self._end(d)
            raise
        self._dispatcher = d
        self._poller.listeners.add(d.listed)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        d = self._opened
        leave = self._leave if kind is None else "detach"
        d.end_runs(ClientClosed("the block was left; the rest of the input was not read"))
        try:
            if leave == "drain":
                await self._drained(d)
        finally:
            self._poller.listeners.discard(d.listed)
            await self._close(d, leave, abandon=kind is not None)

    async def _drained(self, d: Dispatcher) -> None:
        """Wait until every push has ended; say so, ever more rarely, if that takes long."""
        pause = SILENCE
        while await d.tasks.sleep(pause, d.handles.idle):
            logger.warning(
                "leaving the block waits for %d pushes that have not ended; "
                'wait=, or leave="detach", ends such waits',
                len(d.handles.unsettled),
            )
            pause *= 2

    async def _close(self, d: Dispatcher, leave: Leave, *, abandon: bool) -> None:
        d.stopped = d.stopped or ClientClosed("this coordinator's block has been left")
        d.end_runs(d.stopped)  # runs that have begun since
        if abandon:
            d.tasks.halt()
            for task in d.sender.in_line:
                task.cancel()
        try:
            await d.aclose()
        finally:  # even if cancelled: give everything an outcome and close the journal
            if leave != "cancel":
                self.detached += tuple(d.keys)
            if abandon and self.detached:
                where = "the journal: open it again" if d.store.durable else "`detached`"
                logger.warning(
                    "an exception ended the block; pushes that continue at the service: %d; "
                    "their keys are in %s",
                    len(self.detached),
                    where,
                )
            await self._end(d)

    async def _end(self, d: Dispatcher) -> None:
        """End what still runs, as a crash would, and return the store.

        To the end, also if the caller is cancelled at each of its steps, as by anyio's scopes:
        otherwise nobody could act for the companies whose leases stay behind.
        """
        d.let_go_of_all()
        await to_the_end(asyncio.ensure_future(self._end_and_return_store(d)))

    async def _end_and_return_store(self, d: Dispatcher) -> None:
        try:
            await d.tasks.end()
            await d.store.release()
        finally:
            await self._store.take_back()
            if self._store_is_ours:
                await self._store.aclose()

    @property
    def _opened(self) -> Dispatcher:
        if self._dispatcher is None:
            raise ConfigurationError(
                "open the coordinator first: async with client.coordinator() as pushes"
            )
        return self._dispatcher

    # Pushing

    async def submit(self, request: PushRequest, *, wait: float | None = None) -> Push:
        """Push one record; return when the service has answered.

        While ``max_open`` pushes have no outcome, it waits first. To send several at a time,
        call it from several tasks, or use `run`. If the caller is cancelled, the push
        continues.

        Args:
            request: What to push.
            wait: Seconds to wait for the outcome, from the moment the answer arrives or is
                lost. After that the push is PENDING, or IN_DOUBT. None waits until the push
                has ended, or until a minute after its ``timeout_minutes``.

        Returns:
            A push with a ``key``. It has an ``outcome`` already if the service refused it, or
            if the platform answers at once. It has neither while the SDK searches the list for
            a push whose answer was lost, or while another push with the same reference is
            being sent: it then gets that push's outcome.

        Raises:
            InvalidRecord: The record is invalid; nothing was sent.
            ReferenceConflict: The reference was used for a different record; nothing was sent.
            ConfigurationError: *request* is not a `PushRequest`, an id or the reference is
                invalid, or *wait* is not a number of seconds; nothing was sent.
            AccountExpired, Unauthorized: The service refuses the account, or the API key. After
                three refusals of the key in a row, or one of the account, what is under way is
                withdrawn too, and open pushes are PENDING. The next `submit` or `run` tries again.
            TooManyRequests, ServiceUnavailable: The service refuses for now: for longer than
                ``max_pause``, or as often as ``retry`` allows.
            StoreUnavailable: The database cannot be reached. What is on record is sent when it is
                back: submit again under the same reference.
            JournalError: The journal cannot be read or written; nothing more is sent.
            PushingStopped: A bug ended a task of the coordinator; nothing more is sent.
            ClientClosed: The block was left, or the client is closed.
        """
        seconds("wait", wait)
        d = self._opened
        push = Push(checked(request), wait=wait, on_outcome=self._free)
        await self._places.acquire()
        if why := d.begin():
            self._places.release()
            raise fresh_copy(why)
        d.handles.enter(push)
        work = d.tasks.start(d.sender.push(push))
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:  # it goes on
            work.add_done_callback(log_failure)
            raise
        broken = None if work.cancelled() or work.exception() else work.result()
        if broken is not None:
            raise broken
        while not d.sender.is_answered(push):  # another process sends it, or another task
            await push._next_change()
        outcome = push.outcome
        if outcome and outcome.status is OutcomeStatus.INVALID:
            outcome.raise_for_status()
        error = outcome.error if outcome and not push.key else None
        if error and (outcomes.ends_all(error) or outcomes.may_pass(error) or error is d.stopped):
            raise fresh_copy(error)
        return push

    def _free(self, _: Push) -> None:
        self._places.release()

    def run(
        self,
        requests: Iterable[PushRequest] | AsyncIterable[PushRequest],
        *,
        ordered: bool = False,
        raise_on: RaiseOn = "none",
        wait: float | None = None,
        total: int | None = None,
    ) -> AsyncGenerator[PushOutcome, None]:
        """Push many records and yield each outcome as it arrives.

        It reads *requests* no faster than it can send. An invalid record gets the outcome
        INVALID, and the run continues.

        If you leave the loop early, no more requests are read. Those already read are still
        sent, and the end of the block treats them like any other push. If you keep the
        generator, looping over it again continues where you left; until then it reads at most
        ``max_open`` requests ahead.

        If an error ends the run, the outcomes of all requests already read are yielded before
        it is raised. The rest of *requests* is not read.

        Args:
            requests: Any iterable, sync or async.
            ordered: Yield in the order of *requests*.
            raise_on: "first" raises the error of the first outcome other than SUCCESS and
                reads no more requests. "end" raises it after the last outcome. "none" never
                raises it.
            wait: As for `submit`, for each push.
            total: The number of *requests*, for `progress`, if it has no ``len()``.

        Raises:
            AccountExpired: The account has expired.
            TooManyRequests, ServiceUnavailable: The service asks to wait for longer than
                ``max_pause``; continue at ``retry_at``.
            Unauthorized: The API key was refused three times in a row.
            JournalError: The journal cannot be read or written.
            StoreUnavailable: The database cannot be reached; run again under the same references.
            PushingStopped: A bug ended a task of the coordinator.
            ConfigurationError: *requests* yielded something other than a `PushRequest`.
            CancelledError: A task of the run was cancelled from outside.
            Exception: Whatever *requests* raised.
        """
        one_of("raise_on", raise_on, get_args(RaiseOn))
        seconds("wait", wait)
        if total is not None:
            whole_number("total", total, 0, 10**12)
        d = self._opened
        run = Run(
            d,
            d.sender,
            self._places,
            self._refusals,
            max_open=self._max_open,
            wait=wait,
            ordered=ordered,
            raise_on=raise_on,
            total=total,
        )
        return run.outcomes(requests)

    # Watching

    async def find(self, reference: str) -> Push | None:
        """Return the push with this *reference*; None if the reference is free. Needs a journal.

        It sends no request. If this coordinator follows the push, you get that push and can
        await it. Any other push has the ``outcome`` that the journal knows, PENDING if it had
        not ended, and its ``intent`` is the id for `decide`. Once a push has ended, the journal
        keeps its status and key, but not the record or the platform's data.

        Raises:
            ConfigurationError: There is no journal, or *reference* is not a str.
            JournalError: The journal cannot be read.
            ClientClosed: The block was left.
        """
        if not isinstance(reference, str):
            raise ConfigurationError(f"reference must be a str, not {reference!r}")
        d = self._opened
        if not d.store.durable:
            raise ConfigurationError(
                "find() needs a journal: pass journal= to client.coordinator()"
            )
        if d.over:
            raise ClientClosed("this coordinator's block has been left")
        found = await d.store.rows(reference=reference)
        if not found:
            return None
        # A superseded row comes before the one that superseded it, or is the last by decision.
        row = d.rows.get(found[-1].id, found[-1])
        for held in d.handles.of(row.id):
            return held
        push = Push(outcomes.from_row(row, exact=d.exact), intent=row.id)
        push._settle(outcomes.standing(push.request, row, d.wire.dialect))
        return push

    def notify(self, key: str) -> None:
        """Poll push *key* now; the same as `Client.notify`."""
        self._opened.poller.notify(key)

    @property
    def progress(self) -> PushProgress:
        """How far the pushes have got. Reading it is cheap."""
        d = self._opened
        return d.handles.tally.progress(
            loop_time(), sending=d.crowd.total(), still_open=len(d.keys)
        )

    def detach(self) -> tuple[str, ...]:
        """Stop following all open pushes and return their keys. They continue at the service."""
        error = ClientClosed("the push was detached while Pending; it continues at the service")
        keys = self._opened.give_up(error)
        self.detached += keys
        return keys

    # Doubts

    @property
    def in_doubt(self) -> tuple[Push, ...]:
        """Pushes that are IN_DOUBT or still being searched for; each has an ``intent``."""
        d = self._opened
        return tuple(push for row in d.doubts() for push in d.handles.of(row.id)[:1])

    @overload
    async def decide(
        self, intent: str, decision: Literal["resend"], *, record: Any = None
    ) -> Push: ...

    @overload
    async def decide(self, intent: str, decision: Literal["abandon"]) -> None: ...

    @overload
    async def decide(self, intent: str, *, bind: str) -> Push: ...

    @overload
    async def decide(
        self, intent: str, decision: Literal["resend", "abandon"], *, record: Any = None
    ) -> Push | None: ...

    async def decide(
        self,
        intent: str,
        decision: Literal["resend", "abandon"] | None = None,
        *,
        bind: str | None = None,
        record: Any = None,
    ) -> Push | None:
        """Decide what happens to a push that is IN_DOUBT or TIMED_OUT, and record the decision.

        Example::

            for push in pushes.in_doubt:
                error = (await push).error  # the search may still find the push
                if isinstance(error, PushInDoubt) and error.intent:
                    print(error, error.candidates)  # look for it at the platform, then:
                    await pushes.decide(error.intent, "resend")

        Args:
            intent: `PushInDoubt.intent`, or `Push.intent`.
            decision: "resend" pushes the record once more; it may then exist twice. "abandon"
                gives the push up: its reference stays IN_DOUBT for good. If the record turns
                out to be missing, push it under a new reference.
            bind: The key of the push, if you have found it. Pass it instead of *decision*.
            record: With "resend", for a push that TIMED_OUT: the record to push under its
                reference, unchanged or corrected. The journal no longer has it.

        Returns:
            The push that continues; None after "abandon".

        Raises:
            ConfigurationError: The push is not in doubt, or the arguments do not fit. With
                *record*, also whatever `submit` raises, after the decision was recorded.
            JournalError: The decision could not be recorded and has no effect.
            ClientClosed: The block was left.
        """
        if (decision in {"resend", "abandon"}) == (bind is not None):
            raise ConfigurationError('pass "resend" or "abandon", or the key of a push as bind=')
        if record is not None and decision != "resend":
            raise ConfigurationError('record= needs "resend"')
        d = self._opened
        if record is not None:
            timed_out = await d.tasks.see_through(self._give_back(intent))
            return await self.submit(evolve(timed_out, record=record))
        row = await self._in_doubt(intent)
        if bind is not None:
            await self._check_key(row, bind)
        return await d.tasks.see_through(self._decided(intent, decision, bind))

    async def _decided(self, intent: str, decision: str | None, bind: str | None) -> Push | None:
        d, row = self._opened, await self._in_doubt(intent)
        push = self._again(row)
        d.handles.enter(push)  # so that whoever leaves the block waits for it
        try:
            while True:
                try:
                    return await self._carry_out(row, decision, bind, push)
                except Stale:  # a search has changed it, or somebody else has decided
                    await d.restart(intent)
                    row = await self._in_doubt(intent)
        finally:
            if push.intent is None:
                d.handles.forget(push)

    async def _carry_out(
        self, row: Row, decision: str | None, bind: str | None, push: Push
    ) -> Push | None:
        if bind is not None:
            return await self._bind(row, bind, push)
        if decision == "resend":
            return await self._resend(row, push)
        await self._decide(after(row, Event.ABANDONED, decision="abandon"))
        return None

    async def _in_doubt(self, intent: str) -> Row:
        """Return the row of *intent*, about which the caller may decide.

        Raises:
            ConfigurationError: It is not in doubt, or not any more.
        """
        d = self._opened
        if d.tasks.closing.is_set():
            raise ClientClosed("this coordinator's block has been left")
        row = d.rows.get(intent)
        if row is None and d.store.shared:  # another process carries it
            found = await d.store.rows(ids=[intent])
            row = found[0] if found else None
        if row is None or row.state is not State.DOUBT:
            state = "settled or unknown" if row is None else _NOT_YET.get(row.state, row.state)
            raise ConfigurationError(
                f"intent {intent} is {state}; you can decide only about a push that is IN_DOUBT"
            )
        return row

    async def _decide(self, row: Row, push: Push | None = None) -> None:
        """Record a decision; from then on *push* has what becomes of *row*."""
        d = self._opened
        made = d.store.decide(row)
        if made is not None:
            await d.committed(row.id, made)
        if push is not None and push not in d.handles.of(row.id):
            d.handles.join(push, row.id)
        d.arrive(row)

    async def _check_key(self, row: Row, key: str) -> None:
        """Reject a mistyped key before the decision, which is final, is recorded."""
        d = self._opened
        requests.segment("bind", key)
        found = await d.wire.read_singly(row.company, (key,))
        if not found:
            raise ConfigurationError(
                f"push {key} cannot be read at the service; nothing was recorded"
            )
        if not in_lane(found[0], row.lane, self._policy.path_names):
            raise ConfigurationError(f"push {key} is of another connection or data type")

    async def _bind(self, row: Row, key: str, push: Push) -> Push:
        d = self._opened
        if key in d.keys:
            raise KeyClaimed(f"push {key} already belongs to intent {d.keys[key]}")
        waiting = [one for one in d.handles.of(row.id) if one.outcome is None]
        push = waiting[0] if waiting else push
        bound = after(row, Event.FOUND, decision="bind", key=key, evidence=Evidence.CALLER)
        await self._decide(bound, push)
        return push

    async def _resend(self, row: Row, push: Push) -> Push:
        d = self._opened
        if row.payload is None:
            row = (await d.store.rows(ids=[row.id]))[0]
        await d.sender.resend(row, [push])
        return push

    def _again(self, row: Row) -> Push:
        """Return a new push for the request of *row*."""
        held = self._opened.handles.of(row.id)
        request = held[0].request if held else outcomes.from_row(row, exact=self._opened.exact)
        return Push(request)

    async def _give_back(self, intent: str) -> PushRequest:
        """Free the reference of a push that timed out, and return its request."""
        d = self._opened
        if d.tasks.closing.is_set():
            raise ClientClosed("this coordinator's block has been left")
        found = await d.store.rows(ids=[intent])
        if not found or not outcomes.has_ended(found[0], PushStatus.TIMED_OUT):
            raise ConfigurationError(
                f"record= needs a push that timed out; intent {intent} is not one in this journal"
            )
        await self._decide(after(found[0], Event.RESENT, decision="resend"))
        return outcomes.from_row(found[0], exact=d.exact)


_NOT_YET: Final = {State.SENDING: "still being sent", State.LOST: "still being searched for"}
