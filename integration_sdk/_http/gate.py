"""The gate: a 429 or 503 closes it for all requests that it concerns.

::

    open ──refused──> closed, until opens_at ──> a probe goes through ──answered──> open
                        ^                          │
                        └──────refused, longer─────┘

While it is closed nobody sends, so a crowd of tasks costs the service one request per
pause, not one each. The gate keeps the answer that closed it: a call whose deadline ends
before the gate can open gets that answer at once.

A 503 that names no time, from a service that serves others meanwhile, closes nothing: see
`Throttle`. Answers to requests that were sent before the gate closed neither open it nor make the
next pause longer; they can only name a later time.
"""

from __future__ import annotations

from typing import Final, Self

from attrs import define, field, frozen

from integration_sdk._answer_parts import Quota
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter, pause
from integration_sdk._http.retry_after import retry_after, service_time

LONGEST_PROBE_INTERVAL: Final = 4.0
"""Maximum seconds between probes if the service names no time."""
SHORTEST_PROBE_INTERVAL: Final = 0.05
SPREAD: Final = 0.02
"""Share of ``Retry-After`` added as jitter, so that processes do not come back all at once."""
PROBE_PATIENCE: Final = 2.0
"""Seconds after which another probe may go though one is in flight (for a large page)."""


@frozen(kw_only=True)
class Refusal:
    """A 429 or 503, and whom it concerns.

    Attributes:
        answer: The answer, for calls that cannot wait until the gate opens.
        floor: Seconds to wait that the answer asks for; None if it names none.
        base: Maximum seconds of the first pause if the answer names none.
        company_only: Whether it concerns the company alone; None if it does not say.
    """

    answer: Response
    floor: float | None = None
    base: float = 1.0
    company_only: bool | None = None

    @classmethod
    def of(cls, answer: Response, quota: Quota | None, *, of_company: bool, base: float) -> Self:
        """Return what a 429 or 503 means; *of_company* tells whether one was asked about.

        Assumed: a 429 that says ``X-Rate-Limit-Remaining`` above 0 is the company's own
        limit, since the account's is not used up, and one that says 0 is not.
        """
        left = quota.remaining if of_company and answer.status == 429 and quota else None
        floor = retry_after(
            answer.headers.get("Retry-After"), service_time(answer.headers, answer.received_at)
        )
        return cls(
            answer=answer,
            floor=floor or None,
            base=base,
            company_only=None if left is None else left > 0,
        )

    @property
    def blames_crowd(self) -> bool:
        """Whether too many requests may be the cause: of a 429, but not of a 503."""
        return self.answer.status == 429


@define
class RetryAfterGate:
    """Open, or closed until some moment and then open for one probe at a time.

    Attributes:
        closed_by: The answer that closed it; None while it is open.
        opens_at: When a probe may go, on the caller's clock; while one is in flight, when the
            next may.
        closed_at: When it closed, or its last probe was refused.
    """

    closed_by: Response | None = field(default=None, init=False)
    opens_at: float = field(default=0.0, init=False)
    closed_at: float = field(default=0.0, init=False)
    _named: float = field(default=0.0, init=False)
    """The latest time that the service named."""
    _pauses: int = field(default=0, init=False)

    @property
    def is_open(self) -> bool:
        """Whether everybody may pass."""
        return self.closed_by is None

    @property
    def has_named_time(self) -> bool:
        """Whether the service said how long it stays closed."""
        return self._named > 0.0

    def admits(self, now: float) -> bool:
        """Return whether somebody may pass now."""
        return self.closed_by is None or now >= self.opens_at

    def passed(self, now: float) -> None:
        """Note that a request was sent; if the gate is not open, it is the probe."""
        if self.closed_by is not None:
            self.opens_at = now + PROBE_PATIENCE

    def refused(self, refusal: Refusal, sent_at: float, now: float, jitter: Jitter) -> None:
        """Close the gate: a request that left at *sent_at* was refused."""
        floor = refusal.floor or 0.0
        if self.closed_by is None and floor:
            self.closed_at, self.opens_at = now, now + SHORTEST_PROBE_INTERVAL
        elif self.closed_by is None or sent_at > self.closed_at:
            self._close(refusal.base, now, jitter)
        self.closed_by = refusal.answer
        spread = jitter(SPREAD * floor)
        if floor:
            self._named = max(self._named, now + floor + spread)
        self.opens_at = max(self.opens_at, self._named)

    def answered(self, sent_at: float) -> bool:
        """Note an answer; if it was the probe's, open the gate and return True."""
        if self.closed_by is None or sent_at <= self.closed_at:
            return False
        self.closed_by, self._pauses, self.opens_at, self._named = None, 0, 0.0, 0.0
        return True

    def unanswered(self, sent_at: float, now: float, jitter: Jitter) -> None:
        """Note that a request had no answer; if it was the probe, delay the next one."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self._close(1.0, now, jitter)

    def unused(self, sent_at: float, now: float) -> None:
        """Note that a request was not sent; if it was the probe, allow another at once."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self.opens_at = max(now, self._named)

    def _close(self, base: float, now: float, jitter: Jitter) -> None:
        closed_for = pause(
            self._pauses,
            first=base,
            cap=LONGEST_PROBE_INTERVAL,
            jitter=jitter,
            floor=SHORTEST_PROBE_INTERVAL,
        )
        self._pauses += 1
        self.closed_at = now
        self.opens_at = max(self._named, now + closed_for)
