"""A push in memory: what its callers hold, and what its holder knows of it.

Ten thousand pushes may be open, so a push is a few slots and no task. It makes a future only when
it is awaited.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Any, Literal

from attrs import Factory, define, field, frozen

from integration_sdk._handed_out import handed_out
from integration_sdk._http.requests import Request
from integration_sdk._outcome import PushOutcome
from integration_sdk._push.evidence import Finding
from integration_sdk._store.row import Mark, Row, State, Verdict
from integration_sdk._text import brief
from integration_sdk.models import OutcomeStatus, PushOperation, PushRequest

What = Literal["sent", "doubted", "changed", "ended", "found"]


@handed_out
@define(eq=False)
class Push:
    """One record being pushed. Await it for its `PushOutcome`, from as many tasks as you like.

    Attributes:
        request: What you asked for.
        operation: Last state seen; None until the service has answered, or if it refused.
        outcome: None until the push has ended.
        number: Its place in the input of `Coordinator.run`, from 0.
        intent: Its id in the journal, for `Coordinator.decide`; None until it is known.
    """

    request: PushRequest
    operation: PushOperation | None = field(default=None, repr=False)
    outcome: PushOutcome | None = field(default=None, repr=lambda one: one.status.name)
    number: int = field(default=0, repr=False)
    intent: str | None = field(default=None, repr=False)
    _wait: float | None = field(default=None, repr=False)
    _on_outcome: Callable[[Push], None] | None = field(default=None, repr=False)
    _waiters: list[asyncio.Future[None]] | None = field(default=None, repr=False)
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False)
    __repr__ = brief

    @property
    def key(self) -> str | None:
        """The ``pushOperationKey``; None until the service has given one."""
        return self.operation.push_operation_key if self.operation else None

    def __await__(self) -> Generator[object, None, PushOutcome]:
        """Wait for the outcome. Cancelling the wait does not affect the push."""
        while self.outcome is None:
            yield from self._next_change().__await__()
        return self.outcome

    async def _next_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = self._waiters or []
        self._waiters.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in (self._waiters or ()):  # a push may be awaited for a second, day by day
                self._waiters.remove(future)
            raise

    # For the coordinator

    def _wake(self, seen: PushOperation | None = None) -> None:
        """Let all awaiting tasks look again; *seen*: the state that the service has answered."""
        self.operation = seen or self.operation
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    def _wait_for(self, seconds: float, expire: Callable[[Push, float], Any]) -> None:
        """Call *expire* when so many seconds have passed, unless there is an outcome by then."""
        if self.outcome is None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, expire, self, seconds)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, outcome: PushOutcome) -> None:
        self._end_wait()
        self.outcome = outcome
        self._wake(outcome.operation)
        if self._on_outcome:
            self._on_outcome(self)
            self._on_outcome = None


@define(eq=False)
class Company:
    """What is under way for a company: pushes to be sent, pushes that are searched for.

    line: The carrier that waits for its turn; there is one at most.
    waiting: Number of pushes that the service has not answered.
    mark, mark_until: Its watermark, and until when it serves.
    news: Set when a doubtful push is added.
    listed: When it was last listed in search of pushes.
    """

    id: str
    queue: deque[Live] = Factory(deque)
    line: asyncio.Task[None] | None = None
    waiting: int = 0
    mark: Mark | None = None
    mark_until: float = -inf
    doubtful: dict[str, Live] = Factory(dict)
    news: asyncio.Event = Factory(asyncio.Event)
    search: asyncio.Task[None] | None = None
    listed: deque[float] = Factory(lambda: deque(maxlen=12))


@define(eq=False)
class Live:
    """A push that this process holds, and what is fresher than its row.

    row: As it is on record; version -1 before that.
    pushes: What callers hold of it. Those that have been IN_DOUBT stay.
    is_own: Whether a caller here has asked for it, rather than an earlier run.
    is_waiting, is_carried: Whether the service has not answered; whether a carrier has it.
    later: The timer that has it sent again.
    sent_at: When it first left, by the loop's clock and by the wall's.
    lost_at: Since when it has been searched for, by the loop's clock.
    finding: What the last listing has suggested.
    """

    row: Row
    company: Company
    pushes: list[Push]
    call: Request | None = None
    operation: PushOperation | None = None
    is_own: bool = True
    is_waiting: bool = False
    is_carried: bool = False
    tries: int = 0
    later: asyncio.TimerHandle | None = None
    sent_at: tuple[float, float] | None = None
    writing: asyncio.Future[Row] | None = None
    lost_at: float = -inf
    finding: Finding | None = None

    @property
    def awaits_another(self) -> bool:
        """Whether another listing could confirm what the last one suggests about it in DOUBT."""
        finding, row = self.finding, self.row
        if finding is None or row.state is not State.DOUBT:
            return False
        is_news = finding.verdict is Verdict.ABSENT and row.verdict is not Verdict.ABSENT
        return is_news or finding.key is not None


@frozen
class PushEvent:
    """Something that happened to a push.

    ``what`` is one of:

    * "sent": the service has accepted it, and ``push.key`` is known;
    * "doubted": its answer was lost, and the SDK searches the company's pushes for it;
    * "changed": it has a new status that is not final;
    * "ended": it has an outcome;
    * "found": it was IN_DOUBT and was found; ``push.operation`` is its final state.
    """

    what: What
    push: Push


@frozen
class PushProgress:
    """How far the pushes of a coordinator have got.

    Attributes:
        sending: Pushes being sent to the service.
        open: Pushes accepted by the service and not final.
        outcomes: Number of pushes that have ended, by outcome.
        total: Number of pushes expected, from the ``len()`` or ``total=`` of runs; None if unknown.
        rate: Outcomes per second.
        eta: Seconds until all have ended; None if unknown.
    """

    sending: int
    open: int
    outcomes: Mapping[OutcomeStatus, int]
    total: int | None
    rate: float
    eta: float | None

    @property
    def ended(self) -> int:
        """How many have an outcome."""
        return sum(self.outcomes.values())


@define
class Tally:
    """Counts outcomes, for `PushProgress`."""

    total: int | None = None
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    _since: float | None = None
    _is_known: bool = True

    def expect(self, more: int | None) -> None:
        """Add the pushes of a run; None if it is not known how many they are."""
        self._is_known = self._is_known and more is not None
        self.total = (self.total or 0) + (more or 0) if self._is_known else None

    def ended(self, status: OutcomeStatus, now: float) -> None:
        self.outcomes[status] += 1
        self._since = now if self._since is None else self._since

    def progress(self, now: float, *, sending: int, still_open: int) -> PushProgress:
        """Return the current progress, with *still_open* pushes that are not final."""
        passed = now - self._since if self._since is not None else 0.0
        ended = self.outcomes.total()
        rate = ended / passed if passed > 0 else 0.0
        left = None if self.total is None else max(0, self.total - ended)
        eta = 0.0 if left == 0 else left / rate if left is not None and rate else None
        return PushProgress(sending, still_open, dict(self.outcomes), self.total, rate, eta)


def about(row: Row) -> dict[str, object]:
    """Return what a log record has beside its message."""
    names = {"reference": row.reference, "intent": row.id, "company": row.company}
    return {**names, "push_key": row.key}
