"""A call: its options, and its state while it is under way."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from attrs import Attribute, define, evolve, field, frozen

from integration_sdk._sansio.arguments import is_number
from integration_sdk._sansio.requests import Priority, Request
from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.throttling.fair_queue import Ticket
from integration_sdk._sansio.throttling.retry import Pauses, RetryPolicy
from integration_sdk._session.carrier import Transmission
from integration_sdk._session.failures import Failure
from integration_sdk._session.key import Hidden
from integration_sdk.errors import ConfigurationError

BeforeSending = Callable[[], Awaitable[None]]
"""Awaited right before a transmission; if it raises, nothing is sent."""


@frozen(kw_only=True)
class CallOptions:
    """The settings that `Client.with_options` changes.

    Attributes:
        timeout: Seconds for the whole call, including waits and retries; None for no limit.
        read_timeout: Seconds without a byte of an answer after which it counts as lost; None for
            no limit.
        retry: How calls are retried.
        priority: Which calls go first when some have to wait; None for the default of each
            kind of call. Pages that are fetched ahead always go last.
    """

    timeout: float | None = field(default=60.0)
    read_timeout: float | None = field(default=60.0)
    retry: RetryPolicy = field(factory=RetryPolicy)
    priority: Priority | None = field(default=None)

    @timeout.validator
    @read_timeout.validator
    def _is_above_zero(self, setting: Attribute[float | None], seconds: float | None) -> None:
        if seconds is not None and not (is_number(seconds) and seconds > 0):
            raise ConfigurationError(
                f"{setting.name} must be more than 0 seconds, or None for no limit, not {seconds!r}"
            )

    @retry.validator
    def _is_a_policy(self, _: object, retry: RetryPolicy) -> None:
        if not isinstance(retry, RetryPolicy):
            raise ConfigurationError(
                f"retry must be a RetryPolicy, or None for no retries, not {retry!r}; "
                "RetryPolicy(attempts=3) sends a call up to three times"
            )

    @priority.validator
    def _is_a_priority(self, _: object, priority: Priority | None) -> None:
        if not isinstance(priority, Priority | None):
            raise ConfigurationError(
                "priority must be a Priority, such as Priority.INTERACTIVE, or None, "
                f"not {priority!r}"
            )

    def once(self) -> CallOptions:
        """Return the same options without retries."""
        return self._once

    @cached_property
    def effective_read_timeout(self) -> float | None:
        """`read_timeout`; None if `timeout` ends the call before, which needs no second timer."""
        if self.read_timeout is None or self.timeout is None:
            return self.read_timeout
        return self.read_timeout if self.read_timeout < self.timeout else None

    @cached_property
    def _once(self) -> CallOptions:  # made once, not with every push: 2.4 us
        return evolve(self, retry=RetryPolicy.never())


@define(eq=False)
class Call:
    """The state of a call that has not ended.

    Attributes:
        request, options, before_sending: The arguments of `Session.send`.
        began: Start of the call, on the loop's clock.
        deadline: Latest end of the call, on the loop's clock.
        ticket: Its place in the throttle's queue.
        number: What its `LoopState` calls it.
        attempts: Transmissions so far.
        paid_after: Transmissions after which the retry budget paid for another; -1 for none.
        waited: Seconds waited so far.
        waits_for: What it waits for while it is not being sent.
        sending: The current transmission; None between two.
        last: The result of the previous transmission.
        authorization: The Authorization header it was last sent with.
        key_renewed: Whether it has asked for a new key after a 401.
        timer: Stops the call when its `LoopState` says so: at the deadline, or when the client
            closes.
    """

    request: Request
    options: CallOptions
    before_sending: BeforeSending | None
    began: float
    deadline: float = field(init=False)
    ticket: Ticket = field(init=False)
    number: int = field(init=False, default=0)
    attempts: int = field(init=False, default=0)
    paid_after: int = field(init=False, default=-1)
    waited: float = field(init=False, default=0.0)
    waits_for: str = field(init=False, default="its turn")
    sending: Transmission | None = field(init=False, default=None)
    last: Response | Failure | None = field(init=False, default=None)
    authorization: Hidden | None = field(init=False, default=None, repr=False)
    key_renewed: bool = field(init=False, default=False)
    timer: asyncio.Timeout = field(init=False, factory=lambda: asyncio.timeout(None))
    _pauses: Pauses | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        timeout, priority = self.options.timeout, self.options.priority
        own, left = self.request.priority, self.request.seconds_left
        limits = [seconds for seconds in (timeout, left) if seconds is not None]
        self.deadline = self.began + min(limits, default=math.inf)
        self.ticket = Ticket(
            self.request.company_id,
            own if priority is None or own is Priority.PREFETCH else priority,
            self.deadline,
        )

    def end(self) -> None:
        """Stop the call now, unless it has been stopped already."""
        if not self.timer.expired():
            self.timer.reschedule(self.began)

    @property
    def facts(self) -> dict[str, Any]:
        """What every error about this call is told."""
        return {**self.request.facts, "attempts": self.attempts}

    @property
    def may_have_left(self) -> bool:
        """Whether the current transmission may have reached the service."""
        return self.sending is not None and self.sending.may_have_left

    @property
    def pauses(self) -> Pauses:
        """Its pauses between transmissions."""
        if self._pauses is None:
            self._pauses = Pauses(self.options.retry)
        return self._pauses
