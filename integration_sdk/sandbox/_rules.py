"""The one mechanism behind all faults: a rule says when it applies and what it does.

What a rule does is a function wrapped around the rest of the call. It may answer by itself or
refuse, wait, change the answer, or change the world for that call. Rules wrap each other in the
order they were added, the first outermost; whatever they wrap comes back as an answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import TypedDict, Unpack

from attrs import define, field

from integration_sdk.sandbox._call import Answer, Call, Refused
from integration_sdk.sandbox._clock import Clock

Proceed = Callable[[], Awaitable[Answer]]
Act = Callable[[Call, Proceed], Awaitable[Answer]]
Seconds = float | tuple[float, float] | Callable[[], float]
"""A fixed time, one between two, or whatever a function gives."""


class Scope(TypedDict, total=False):
    """When a rule applies.

    ``route``: ``"POST /push/"`` (a method, part of a path, or both) or a compiled pattern that is
    searched in ``"POST /companies/..."``. ``skip``: matching calls left alone at first.
    ``times``: calls it applies to before it is spent. ``probability``: of applying to a call.
    """

    route: str | re.Pattern[str]
    skip: int
    times: int
    probability: float


@define(eq=False)
class Rule:
    """A fault in force.

    Args:
        until: Service time after which it has no effect any more.
        hits: Calls it has applied to.
    """

    act: Act
    matches: Callable[[Call], bool]
    chance: random.Random = field(repr=False)
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    until: float = inf
    hits: int = 0
    _seen: int = 0

    def is_over(self, now: float) -> bool:
        """Whether it will apply to no call any more."""
        return now >= self.until or (self.times is not None and self.hits >= self.times)

    def applies(self, call: Call) -> bool:
        """Whether it applies to *call*, which is then counted."""
        if self.times is not None and self.hits >= self.times:
            return False
        if not self.matches(call):
            return False
        self._seen += 1
        if self._seen <= self.skip or self.chance.random() >= self.probability:
            return False
        self.hits += 1
        return True


class Rules:
    """The rules in force.

    Args:
        clock: The service's.
        chance: Seeds the chances of every rule.
        refuse: Makes the answer of a refusal.
    """

    def __init__(
        self, clock: Clock, chance: random.Random, refuse: Callable[[Refused], Answer]
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._refuse = refuse
        self._rules: list[Rule] = []

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    async def through(self, call: Call, handle: Callable[[Call], Awaitable[Answer]]) -> Answer:
        """Let *call* go through all rules that apply and then to *handle*."""
        rules = iter(list(self._rules))

        async def proceed() -> Answer:
            try:
                for rule in rules:
                    if rule.applies(call):
                        return await rule.act(call, proceed)
                return await handle(call)
            except Refused as refused:
                return self._refuse(refused)

        return await proceed()

    def add(self, act: Act, *, outermost: bool = False, **scope: Unpack[Scope]) -> Rule:
        """A fault of your own: *act* gets the call and a function that goes on with it."""
        times, probability = scope.get("times"), scope.get("probability", 1.0)
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be from 0 to 1, not {probability}")
        chance = random.Random(self._chance.random())
        matches = _matcher(scope.get("route", ""))
        rule = Rule(act, matches, chance, scope.get("skip", 0), times, probability)
        self._rules.insert(0 if outermost else len(self._rules), rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """End one fault."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """End all faults."""
        self._rules.clear()

    def _changed(self, change: Callable[[Call], None], scope: Scope) -> Rule:
        async def act(call: Call, proceed: Proceed) -> Answer:
            change(call)
            return await proceed()

        return self.add(act, **scope)

    def _window(
        self,
        seconds: float | None,
        refusal: Callable[[Call], Refused],
        scope: Scope,
        delay: float = 0.0,
    ) -> Rule:
        begins = self._clock.now() + delay

        async def act(call: Call, proceed: Proceed) -> Answer:
            elapsed = call.now - begins
            if elapsed < 0 or (seconds is not None and elapsed >= seconds):
                return await proceed()
            raise refusal(call)

        rule = self.add(act, **scope)
        rule.until = inf if seconds is None else begins + seconds
        return rule

    def _draw(self, seconds: Seconds) -> Callable[[], float]:
        if callable(seconds):
            return seconds
        low, high = seconds if isinstance(seconds, tuple) else (seconds, seconds)
        if not 0 <= low <= high:
            raise ValueError(f"seconds must not be negative or fall: {seconds}")
        chance = random.Random(self._chance.random())
        return lambda: chance.uniform(low, high)


def _matcher(route: str | re.Pattern[str]) -> Callable[[Call], bool]:
    if isinstance(route, re.Pattern):
        return lambda call: route.search(f"{call.method} {call.path}") is not None
    method, _, path = route.rpartition(" ")
    if not method and path.isupper() and "/" not in path:
        method, path = path, ""
    return lambda call: method in {"", call.method} and path in call.path
