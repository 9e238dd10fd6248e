"""The mechanism behind all faults: a rule says when it applies and what it does.

A rule is a function wrapped around the rest of the call. It may answer or refuse, wait, change
the answer, or change the world for that call. It acts either in front of the service, where
connections break and proxies and throttles are, or within it, after the checks of key, quota and
kept idempotent answers. The rules of each place wrap each other in the order they were added, the
first outermost; refusals reach them as answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import TypedDict, Unpack

from attrs import define, field

from integration_sdk.sandbox._call import Answer, Call, Handler, Refused
from integration_sdk.sandbox._clock import Clock

Proceed = Callable[[], Awaitable[Answer]]
Act = Callable[[Call, Proceed], Awaitable[Answer]]
Seconds = float | tuple[float, float] | Callable[[], float]
"""Seconds: a fixed number, a random one between two, or what a function returns."""
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")


class Scope(TypedDict, total=False):
    """When a rule applies.

    ``route``: ``"POST /push/"`` (a method, part of a path, or both; ``{anything}`` stands for one
    segment) or a compiled pattern that is searched in ``"POST /companies/..."``. ``skip``: number
    of matching calls to skip first. ``times``: maximum number of calls it applies to.
    ``probability``: of applying to a call.
    """

    route: str | re.Pattern[str]
    skip: int
    times: int
    probability: float


@define(eq=False)
class Rule:
    """A fault in force.

    Args:
        in_front: Whether it acts in front of the service, not within.
        until: Service time after which it has no effect.
        hits: Number of calls it has applied to.
    """

    act: Act
    matches: Callable[[Call], bool]
    chance: random.Random = field(repr=False)
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    in_front: bool = False
    until: float = inf
    hits: int = 0
    _seen: int = 0

    def is_over(self, now: float) -> bool:
        """Return whether it will not apply to any more calls."""
        return now >= self.until or (self.times is not None and self.hits >= self.times)

    def applies(self, call: Call) -> bool:
        """Return whether it applies to *call*, and count the call if so."""
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
        chance: Seeds the random numbers of every rule.
        refuse: Turns a refusal into an answer.
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

    async def through(self, call: Call, handle: Handler, *, in_front: bool) -> Answer:
        """Pass *call* through the rules of a place that apply, and then to *handle*."""
        rules = iter([rule for rule in self._rules if rule.in_front == in_front])

        async def proceed() -> Answer:
            try:
                for rule in rules:
                    if rule.applies(call):
                        return await rule.act(call, proceed)
                return await handle(call)
            except Refused as refused:
                return self._refuse(refused)

        return await proceed()

    def add(
        self,
        act: Act,
        *,
        in_front: bool = False,
        outermost: bool = False,
        **scope: Unpack[Scope],
    ) -> Rule:
        """Add a fault of your own: *act* gets the call and a function that proceeds with it.

        It acts within the service, or *in_front* of it, or there as the *outermost* rule.
        """
        _check(scope)
        rule = Rule(
            act,
            _matcher(scope.get("route", "")),
            random.Random(self._chance.random()),
            scope.get("skip") or 0,
            scope.get("times"),
            scope.get("probability", 1.0),
            in_front or outermost,
        )
        self._rules.insert(0 if outermost else len(self._rules), rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """End one fault."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """End all faults."""
        self._rules.clear()

    def _window(
        self,
        seconds: float | None,
        refusal: Callable[[], Refused],
        scope: Scope,
        *,
        delay: float = 0.0,
        in_front: bool = True,
    ) -> Rule:
        begins = self._clock.now() + delay

        async def act(call: Call, proceed: Proceed) -> Answer:
            elapsed = call.now - begins
            if elapsed < 0 or (seconds is not None and elapsed >= seconds):
                return await proceed()
            raise refusal()

        rule = self.add(act, in_front=in_front, **scope)
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


def _check(scope: Scope) -> None:
    for name in scope.keys() - Scope.__annotations__.keys():
        known = ", ".join(Scope.__annotations__)
        raise TypeError(f"{name} does not say when a fault applies: that is said by {known}")
    for name, least in (("skip", 0), ("times", 1)):
        value = scope.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    probability = scope.get("probability", 1.0)
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must be from 0 to 1, not {probability}")


def _matcher(route: str | re.Pattern[str]) -> Callable[[Call], bool]:
    if not isinstance(route, (str, re.Pattern)):
        raise TypeError(f"route is text or a compiled pattern, not {route!r}")
    pattern = route if isinstance(route, re.Pattern) else re.compile(_pattern(route))
    return lambda call: pattern.search(f"{call.method} {call.path}") is not None


def _pattern(route: str) -> str:
    method, _, path = route.strip().rpartition(" ")
    if not method and path.upper() in METHODS:
        method, path = path, ""
    if method and method.strip().upper() not in METHODS:
        raise ValueError(f"route must be a method, part of a path or both, not {route!r}")
    parts = "[^/]+".join(map(re.escape, _PLACEHOLDER.split(path)))
    return f"^{method.strip().upper() or '[^ ]+'} .*{parts}"
