"""The push coordinator: sends many records and polls for their outcomes together.

An outcome is a value, not an exception, whatever the service decided. What a push goes through is
in `holder`; `run` reads the caller's iterable, `search` looks for lost answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args, overload

from attrs import evolve

from integration_sdk._checks import one_of, seconds, sendable, whole_number
from integration_sdk._handed_out import handed_out
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._options_given import CoordinatorOptions
from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.carrier import Carriers
from integration_sdk._push.holder import BLOCK_LEFT, CheckRecord, Holder
from integration_sdk._push.outcomes import checked
from integration_sdk._push.polling import Polls
from integration_sdk._push.push import Push, PushProgress
from integration_sdk._push.run import HeldBack, RaiseOn, Run
from integration_sdk._push.search import Search, Workers
from integration_sdk._push.table import DOUBTFUL
from integration_sdk._push.wire import Service, Wire
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ClientClosed, ConfigurationError, fresh_copy
from integration_sdk.models import OutcomeStatus, PushRequest

logger = logging.getLogger("integration_sdk.pushes")

INTERRUPTED: Final = (
    "an exception ended the block; pushes that continue at the service: %d; their keys are in %s"
)
FIVE_TIMES: Final = RetryPolicy(attempts=5)


@handed_out
class Coordinator:
    """Pushes many records and reports the outcome of each. Use it as ``async with``.

    Create it with `Client.coordinator`, which explains the options.

    Attributes:
        detached: Keys of pushes that are no longer followed. They continue at the service.
    """

    def __init__(
        self,
        service: Service,
        polls: Polls,
        dialect: Dialect,
        options: CoordinatorOptions,
        *,
        base_url: str = "",
        check: CheckRecord | None = None,
        held_back: HeldBack = tuple,
        retry: RetryPolicy = FIVE_TIMES,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._options, self._base_url, self._dialect = options, base_url, dialect
        self._held = partial(
            Holder,
            Wire(service, dialect),
            polls,
            options=options,
            retry=retry,
            chance=chance,
            check=check,
        )
        journal = options.journal
        self._store: Store | None = None
        if journal is not None:
            self._store = journal if isinstance(journal, Store) else Store(journal)
        self._store_is_ours = self._store is not journal
        self._held_back = held_back
        self._places: asyncio.Semaphore
        self._holder: Holder | None = None
        self._search: Search
        self._now: Callable[[], float]
        self.detached: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Coordinator with {self._store or 'no journal'}>"

    # The block

    async def __aenter__(self) -> Self:
        if self._holder is not None and not self._holder.over:
            raise ConfigurationError("this coordinator is open already: use it in its block")
        self._now = asyncio.get_running_loop().time
        self._places = asyncio.Semaphore(self._options.max_open)  # a block may have its own loop
        self._holder, journal = None, None
        try:
            if self._store is not None:
                journal = await self._store._lend(
                    base_url=self._base_url, dialect=self._dialect.name
                )
            holder = self._held(journal=journal)
            Carriers(holder)
            self._holder, self._search = holder, Search(holder)
            await Workers(holder).open()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._end()))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        holder = self._opened
        holder.leaving = True
        holder.end_runs(ClientClosed("the block was left; the rest of the input was not read"))
        try:
            while kind is None and self._options.leave == "drain" and holder.unsettled:
                await holder.idle.wait()
        finally:
            holder.close(ClientClosed(BLOCK_LEFT))
            try:
                await holder.join_tasks()
            finally:  # even if cancelled: to the end, or the journal would stay in use
                self.detached += holder.open_keys
                if kind is not None and self.detached:
                    where = "the journal: open it again" if self._store else "`detached`"
                    logger.warning(INTERRUPTED, len(self.detached), where)
                await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _end(self) -> None:
        """End what still runs, as a crash would, and return the store."""
        holder = self._holder  # the next block may begin before the end of this one
        try:
            if holder is not None:
                await holder.end()
        finally:
            if self._store is not None:
                if holder is not None:  # else another coordinator has it
                    await self._store._take_back()
                if self._store_is_ours:
                    await self._store.aclose()

    @property
    def _opened(self) -> Holder:
        if self._holder is None:
            raise ConfigurationError(
                "open the coordinator first: async with client.coordinator() as pushes"
            )
        return self._holder

    @property
    def recovered(self) -> tuple[Push, ...]:
        """Pushes of earlier runs, and of workers that died, which this coordinator continues."""
        return tuple(self._holder.recovered) if self._holder else ()

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
            PushError: A bug ended a task of the coordinator; nothing more is sent.
            ClientClosed: The block was left, or the client is closed.
        """
        seconds("wait", wait)
        holder, places = self._opened, self._places
        push = Push(checked(request), wait=wait, on_outcome=lambda _: places.release())
        await places.acquire()
        if why := holder.begin():
            places.release()
            raise fresh_copy(why)
        holder.accept(push)
        try:
            while not holder.is_answered(push):
                await push._next_change()
        except asyncio.CancelledError:  # it goes on
            holder.keep_on_record(push)
            raise
        outcome = push.outcome
        if outcome and outcome.status is OutcomeStatus.INVALID:
            outcome.raise_for_status()
        error = outcome.error if outcome and not push.key else None
        if error and (
            outcomes.ends_all(error) or outcomes.may_pass(error) or error is holder.stopped
        ):
            raise fresh_copy(error)
        return push

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
            PushError: A bug ended a task of the coordinator.
            ConfigurationError: *requests* yielded something other than a `PushRequest`.
            Exception: Whatever *requests* raised.
        """
        one_of("raise_on", raise_on, get_args(RaiseOn))
        seconds("wait", wait)
        if total is not None:
            whole_number("total", total, 0, 10**12)
        run = Run(
            self._opened,
            self._places,
            self._held_back,
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
        holder = self._opened
        if holder.journal is None:
            raise ConfigurationError(
                "find() needs a journal: pass journal= to client.coordinator()"
            )
        if holder.closing:
            raise ClientClosed(BLOCK_LEFT)
        live = holder.references.get(reference)
        for held in live.pushes if live else ():
            return held
        found = [live.row] if live else await holder.journal.rows(references=[reference])
        for row in found:
            push = Push(holder.request_of(row), intent=row.id)
            push._settle(outcomes.standing(push.request, row, self._dialect))
            return push
        return None

    def notify(self, key: str) -> None:
        """Poll push *key* now; the same as `Client.notify`."""
        self._opened.polls.notify(sendable("key", key))

    @property
    def progress(self) -> PushProgress:
        """How far the pushes have got. Reading it is cheap, from any thread."""
        holder = self._opened
        return holder.tally.progress(
            self._now(),
            sending=holder.waiting,
            still_open=len(holder.keys),
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
        lives = self._opened.live.values()
        doubts = [one for one in lives if one.row.state in DOUBTFUL]
        return tuple(push for live in doubts for push in live.pushes[:1])

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
            IntegrationError: With "resend", while nothing is sent: what `submit` would raise.
            ClientClosed: The block was left.
        """
        if (decision in {"resend", "abandon"}) == (bind is not None):
            raise ConfigurationError('pass "resend" or "abandon", or the key of a push as bind=')
        if record is not None and decision != "resend":
            raise ConfigurationError('record= needs "resend"')
        self._opened  # noqa: B018 - or it says so
        if record is not None:
            timed_out = await self._search.give_back(intent)
            return await self.submit(evolve(timed_out, record=record))
        return await self._search.decide(intent, decision, bind)
