"""How often a request may be sent again, and when; whether at all, `statuses` says.

Again means within the call's `RetryPolicy`, its deadline and, for failures that no gate
holds back, the `RetryBudget` that all calls share.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import backoff
from attrs import Attribute, define, field, frozen

from integration_sdk._checks import seconds, whole_number

Jitter = Callable[[float], float]
"""Returns a random number between 0 and its argument; `backoff.full_jitter` is one."""

SHORTEST_PAUSE: Final = 0.01
MOST_DOUBLINGS: Final = 30
FULL_BUDGET: Final = 500.0
REPETITION: Final = 5.0  # tokens that a repetition takes from the budget
SUCCESS: Final = 0.5  # tokens that a success gives back


def pause(
    number: int,
    *,
    first: float,
    cap: float,
    jitter: Jitter = backoff.full_jitter,
    floor: float = 0.0,
) -> float:
    """Return the seconds of a pause in a row of pauses that grow; *number* 0 is the first.

    It is drawn by *jitter* from 0 to a limit, which is *first* at first and doubles with each
    pause up to *cap*. It is never below *floor*, such as what ``Retry-After`` says.
    """
    limits = backoff.expo(factor=first, max_value=cap)
    limits.send(None)  # its generators begin with an empty step
    limit: float = next(islice(limits, min(number, MOST_DOUBLINGS), None))
    return max(floor, jitter(limit))


def _seconds(_: object, attribute: Attribute[Any], value: float) -> None:
    seconds(attribute.name, value, or_none=False)


def _count(_: object, attribute: Attribute[Any], value: object) -> None:
    whole_number(attribute.name, value, 1, 10**6)


@frozen(kw_only=True)
class RetryPolicy:
    """How one call is repeated.

    Attributes:
        attempts: Maximum number of times it is sent; 1 for no retries.
        base: Longest first pause, in seconds; the limit doubles with each further pause.
        throttled_base: The same after a 429, and after a 503 that holds all calls back.
        cap: Longest pause of all, unless the service asks for more.

    Pauses are drawn between 0 and their limit ("full jitter"), and never end before
    ``Retry-After``.
    """

    attempts: int = field(default=3, validator=_count)
    base: float = field(default=0.05, validator=_seconds)
    throttled_base: float = field(default=1.0, validator=_seconds)
    cap: float = field(default=20.0, validator=_seconds)

    @classmethod
    def never(cls) -> RetryPolicy:
        """A policy without retries."""
        return cls(attempts=1)

    def pause(
        self, number: int, jitter: Jitter, *, throttled: bool = False, floor: float = 0.0
    ) -> float:
        """Return how many seconds to wait before it is sent again; see `pause`."""
        first = self.throttled_base if throttled else self.base
        floor = max(SHORTEST_PAUSE, floor)
        return pause(number, first=first, cap=self.cap, jitter=jitter, floor=floor)


@define
class RetryBudget:
    """Tokens shared by all calls of a client, so that an outage does not multiply requests.

    A full budget allows 100 repetitions; after that, ten successes allow one more.
    """

    tokens: float = FULL_BUDGET

    def spend(self) -> bool:
        if self.tokens < REPETITION:
            return False
        self.tokens -= REPETITION
        return True

    def earn(self) -> None:
        self.tokens = min(FULL_BUDGET, self.tokens + SUCCESS)
