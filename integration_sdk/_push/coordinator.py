"""The push coordinator: sends many records and polls for their outcomes together.

A push is sent once (`sender`), then handed to the poller, which reports its final state to the
`tracker`. An outcome is a value, not an exception, whatever the service decided. `Coordinator.run`
(`bulk`) adds a few workers that pull from the caller's iterable as places become free.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import AsyncIterable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

from attrs import evolve

from integration_sdk._checks import (
    is_number,
    one_of,
    seconds,
    true_or_false,
    whole_number,
)
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._push import clock, decisions, outcomes
from integration_sdk._push.bulk import Bulk, PushRun, RaiseOn, checked
from integration_sdk._push.driver import ProtocolDriver
from integration_sdk._push.effects import Policy
from integration_sdk._push.options import CoordinatorOptions, InDoubt, Leave
from integration_sdk._push.places import Places, Refusals
from integration_sdk._push.poller import Poller
from integration_sdk._push.progress import PushProgress
from integration_sdk._push.push import Push, PushEvent
from integration_sdk._push.push_list import PushList, Service
from integration_sdk._push.push_protocol import PushProtocol
from integration_sdk._push.sender import CheckRecord, Sender
from integration_sdk._push.tracker import PushTracker
from integration_sdk._store.store import Store, is_path, is_url
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ClientClosed, ConfigurationError
from integration_sdk.models import OutcomeStatus, PushRequest

logger = logging.getLogger("integration_sdk.pushes")

FIVE_TIMES: Final = RetryPolicy(attempts=5)
OPTIONS: Final = CoordinatorOptions.__optional_keys__
"""What `Client.coordinator` passes on."""


class Coordinator:
    """Pushes many records and tells how each ended. Use it as ``async with``.

    Args:
        service: Carries requests; `Client.coordinator` supplies it.
        poller: Polls for everybody; likewise.
        dialect: The version of the service; likewise.
        base_url: Where the service is, to which the journal belongs; likewise.
        refusals: What the client's session knows of refusals; likewise.
        check: Called before a push is sent; an `InvalidRecord` that it raises is the outcome.
        retry: How pushes are repeated that provably had no effect.
        chance: Returns a number from 0 to 1, for jitter.
        journal and all others: See `CoordinatorOptions`.

    Attributes:
        detached: Keys of pushes that are no longer followed; they go on at the service.
        recovered: Pushes that an earlier run left in the journal and this one goes on with.

    Raises:
        ConfigurationError: An option cannot work.
    """

    def __init__(
        self,
        service: Service,
        poller: Poller,
        dialect: Dialect,
        *,
        journal: str | os.PathLike[str] | Store | None = None,
        store_payloads: bool = True,
        exclusive: bool = False,
        max_open: int = 2000,
        max_in_flight: int = 64,
        base_url: str | None = None,
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
        true_or_false("store_payloads", store_payloads)
        true_or_false("exclusive", exclusive)
        true_or_false("fetch_data", fetch_data)
        whole_number("max_open", max_open, 1, 10**9)
        whole_number("max_in_flight", max_in_flight, 1, 10**6)
        if not (is_number(patience) and 0 <= patience < math.inf):
            raise ConfigurationError(f"patience must be 0 seconds or more, not {patience!r}")
        seconds("max_pause", max_pause)
        if not (on_event is None or callable(on_event)):
            raise ConfigurationError(f"on_event must be callable, or None, not {on_event!r}")
        self._service, self._poller, self._dialect = service, poller, dialect
        if not (isinstance(journal, Store | None) or is_path(journal) or is_url(journal)):
            raise ConfigurationError(
                "journal must be the path of a file, the postgresql:// URL of a database, a Store, "
                f"or None, not {journal!r}"
            )
        self._store = journal if isinstance(journal, Store) else Store(journal)
        self._store_is_ours = self._store is not journal
        self._store_payloads = store_payloads
        self._owner = None if base_url is None else (base_url, dialect.name)
        self._policy = Policy(
            exclusive=exclusive,
            refuses_with_503=dialect.refuses_with_503,
            path_names=dialect.path_names,
            replays=dialect.idempotency_header is not None,
            retry=retry,
            longest_pause=math.inf if max_pause is None else max_pause,
            search_patience=patience,
        )
        self._chance = chance
        self._check, self._fetch_data, self._on_event = check, fetch_data, on_event
        self._leave, self._in_doubt = leave, in_doubt
        self._max_open, self._places = max_open, asyncio.Semaphore(max_open)
        self._sending = Places(max_in_flight, refusals)
        self._sender: Sender | None = None
        self.detached: tuple[str, ...] = ()
        self.recovered: tuple[Push, ...] = ()

    # The block

    async def __aenter__(self) -> Self:
        if self._sender is not None and not self._sender.tracker.over:
            raise ConfigurationError("this coordinator's block is open already: submit to it")
        try:
            journal = await self._store.lend(self._owner, store_payloads=self._store_payloads)
        except BaseException:
            if self._store_is_ours:
                await self._store.aclose()
            raise
        pushes, exact = PushList(self._service.send, self._dialect), self._poller.exact
        driver = ProtocolDriver(self._service, pushes, journal, exact=exact)
        protocol = PushProtocol(driver, self._policy, self._chance)
        tracker = PushTracker(
            self._poller,
            self._dialect,
            protocol,
            fetch_data=self._fetch_data,
            on_event=self._on_event,
        )
        sender = Sender(tracker, protocol, self._sending, self._check)
        if self._in_doubt == "resend":
            tracker.resend = partial(decisions.resend_missing, sender)
        try:
            self.recovered = tuple(await sender.recover())
        except BaseException:
            await self._return_store()
            raise
        self._sender = sender
        self._sending.open()
        self._poller.listeners.add(tracker.listed)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sender = self._require_sender()
        tracker = sender.tracker
        leave = self._leave if kind is None else "detach"
        tracker.end_runs(ClientClosed("the block was left; the rest of the input is untouched"))
        try:
            if leave == "drain":
                await tracker.idle.wait()
        finally:
            self._sending.close()
            self._poller.listeners.discard(tracker.listed)
            await self._close(sender, leave, abandon=kind is not None)

    async def _close(self, sender: Sender, leave: Leave, *, abandon: bool) -> None:
        tracker, protocol = sender.tracker, sender.protocol
        tracker.stopped = tracker.stopped or ClientClosed("this coordinator's block has been left")
        tracker.end_runs(tracker.stopped)  # runs that have begun since
        protocol.driver.closing.set()
        if abandon:
            protocol.driver.cancel_unsent()
        try:
            while working := {*tracker.tasks, *protocol.tasks}:
                await asyncio.wait(working)
        finally:  # even if cancelled: give everything an outcome and close the journal
            if leave != "cancel":
                self.detached += tuple(tracker.open)
            if abandon and self.detached:
                where = "the journal: open it again" if protocol.durable else "`detached`"
                logger.warning(
                    "an exception has ended the block; pushes that go on at the service without "
                    "it: %d; their keys are in %s",
                    len(self.detached),
                    where,
                )
            tracker.let_go()
            try:
                await protocol.close()
            finally:
                await self._return_store()

    async def _return_store(self) -> None:
        await self._store.take_back()
        if self._store_is_ours:
            await self._store.aclose()

    @property
    def _tracker(self) -> PushTracker:
        return self._require_sender().tracker

    def _require_sender(self) -> Sender:
        if self._sender is None:
            raise ConfigurationError("open the coordinator first: async with ... as pushes")
        return self._sender

    # Pushing

    async def submit(self, request: PushRequest, *, wait: float | None = None) -> Push:
        """Push one record; return when the service has answered.

        Waits first while ``max_open`` pushes have no outcome. To send several at a
        time, call it from several tasks, or use `run`. If the caller is cancelled,
        the push goes on without it.

        Args:
            request: What to push.
            wait: Seconds to wait for the outcome once the push has been answered, or its
                answer lost; after them it is PENDING, or IN_DOUBT. None waits until the
                push has ended, or to a minute past its ``timeout_minutes``.

        Returns:
            A push with a ``key``. It has an ``outcome`` already if the service refused
            it, or if the platform is synchronous. It has neither while the list is
            searched for a push whose answer was lost, or while another push of the
            same reference is being sent, which it joins.

        Raises:
            InvalidRecord: The record cannot be right; nothing was sent.
            ReferenceConflict: The reference stands for another record; nothing was sent.
            ConfigurationError: *request* is no `PushRequest`, its ids or its reference cannot
                be right, or *wait* is no number of seconds; nothing was sent.
            AccountExpired: The account has expired; nothing more is sent.
            Unauthorized: The API key was refused three times in a row; likewise.
            JournalError: The journal cannot be read or written; nothing more is sent.
            TooManyRequests, ServiceUnavailable: The service asks to wait for longer than
                ``max_pause``; nothing more is sent.
            PushingStopped: A bug has ended a task of the coordinator; nothing more is sent.
            ClientClosed: The block has been left, or the client is closed.
        """
        seconds("wait", wait)
        sender = self._require_sender()
        tracker = sender.tracker
        push = Push(checked(request), wait=wait, on_outcome=self._free)
        await self._places.acquire()
        if tracker.stopped:
            self._places.release()
            raise tracker.stopped
        await tracker.tasks.see_through(sender.push(push))
        outcome = push.outcome
        if outcome and outcome.status is OutcomeStatus.INVALID:
            outcome.raise_for_status()
        error = outcome.error if outcome and not push.key else None
        if error and (outcomes.ends_all(error) or error is tracker.stopped):
            raise error
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
    ) -> PushRun:
        """Push many records and yield the outcome of each, as they come.

        Takes from *requests* no faster than it can send. A record that cannot be right gets
        the outcome INVALID, and the run goes on.

        Leaving the loop early stops taking. What was taken by then is still sent, and the end
        of the block treats it like any other push; to see those outcomes as well, keep the
        return value and loop over it again.

        Args:
            requests: Any iterable, sync or async.
            ordered: Yield in the order of *requests*.
            raise_on: "first" raises the error of the first outcome other than SUCCESS and
                stops taking, "end" raises it after the last outcome, "none" never raises it.
            wait: As for `submit`, for each push.
            total: How many *requests* will give, for `progress`, where it has no ``len()``.

        Raises:
            AccountExpired: The account has expired. What was taken has been yielded with its
                outcome; the rest of *requests* is untouched.
            TooManyRequests, ServiceUnavailable: Likewise, if the service asks to wait for
                longer than ``max_pause``; go on at ``retry_at``.
            Unauthorized: Likewise, if the API key was refused three times in a row.
            JournalError: Likewise, if the journal cannot be read or written; what was sent
                before is waited for.
            PushingStopped: Likewise, if a bug has ended a task of the coordinator.
            ConfigurationError: *requests* gave something that is no `PushRequest`; raised
                after the outcomes of those before.
            CancelledError: A task of the run was cancelled by somebody else; likewise.
            Exception: Whatever *requests* itself raised, likewise.
        """
        one_of("raise_on", raise_on, get_args(RaiseOn))
        seconds("wait", wait)
        if total is not None:
            whole_number("total", total, 0, 10**12)
        bulk = Bulk(
            self._require_sender(),
            self._places,
            max_open=self._max_open,
            wait=wait,
            ordered=ordered,
            raise_on=raise_on,
            total=total,
        )
        return PushRun(bulk, requests)

    # Watching

    async def find(self, reference: str) -> Push | None:
        """Return the push that stands for *reference*; None if it is free. Needs a journal.

        Asks the service nothing. A push that this coordinator follows is that push, which you
        can await. Any other has its ``outcome``, as far as the journal knows it: PENDING if
        nobody follows it any more; ``intent`` is its id for `decide`. Of a push that has ended,
        the journal keeps the status and key, but neither the record nor the platform's data.

        Raises:
            ConfigurationError: There is no journal, or *reference* is no str.
            JournalError: The journal cannot be read.
            ClientClosed: The block has been left.
        """
        if not isinstance(reference, str):
            raise ConfigurationError(f"reference must be a str, not {reference!r}")
        return await self._require_sender().find(reference)

    def notify(self, key: str) -> None:
        """Poll push *key* now; the same as `Client.notify`."""
        self._require_sender()
        self._poller.notify(key)

    @property
    def progress(self) -> PushProgress:
        """How far the pushes have got; cheap enough to be read often."""
        tracker = self._tracker
        now, sending, still_open = clock.now(), len(tracker.sending), len(tracker.open)
        return tracker.tally.progress(now, sending=sending, still_open=still_open)

    def detach(self) -> tuple[str, ...]:
        """Stop following all open pushes and return their keys; they go on at the service."""
        tracker = self._tracker
        keys = tuple(tracker.open)
        self.detached += keys
        tracker.give_up(ClientClosed("the push was detached while Pending; it goes on"))
        return keys

    # Doubts

    @property
    def in_doubt(self) -> tuple[Push, ...]:
        """Pushes that are IN_DOUBT or still searched for; each has an ``intent``."""
        return tuple(self._tracker.doubted.values())

    async def decide(
        self,
        intent: str,
        decision: Literal["resend", "abandon"] | None = None,
        *,
        bind: str | None = None,
        record: Any = None,
    ) -> Push | None:
        """Decide what becomes of a push that is IN_DOUBT or TIMED_OUT, and put that on record.

        Example::

            for push in pushes.in_doubt:
                error = (await push).error  # a push that is still searched for may be found
                if isinstance(error, PushInDoubt) and error.intent:
                    print(error, error.candidates)  # look for it at the platform, then:
                    await pushes.decide(error.intent, "resend")

        Args:
            intent: `PushInDoubt.intent`, or `Push.intent`.
            decision: "resend" pushes the record once more; you may end up with it twice.
                "abandon" gives it up: its reference stays IN_DOUBT for good, so if the
                record turns out to be missing, push it under a new reference.
            bind: The key of the push, if you have found it; in place of *decision*.
            record: With "resend", for a push that TIMED_OUT, of which the journal has no
                record any more: what to push under its reference, as it was or corrected.

        Returns:
            The push that goes on; None after "abandon".

        Raises:
            ConfigurationError: It is not in doubt, or *decision* makes no sense; with *record*
                also whatever `submit` raises, once the decision is on record.
            JournalError: The decision could not be recorded, and does not count.
            ClientClosed: The block has been left.
        """
        if (decision in {"resend", "abandon"}) == (bind is not None):
            raise ConfigurationError('decide "resend" or "abandon", or give bind= a push key')
        if record is not None and decision != "resend":
            raise ConfigurationError('record= is for "resend"')
        sender = self._require_sender()
        if record is not None:
            timed_out = await decisions.give_back(sender.tracker, sender.protocol, intent)
            return await self.submit(evolve(timed_out, record=record))
        if bind is not None:
            return await decisions.bind(sender.tracker, sender.protocol, intent, bind)
        if decision == "abandon":
            await decisions.abandon(sender.tracker, sender.protocol, intent)
            return None
        return await decisions.resend(sender, intent)
