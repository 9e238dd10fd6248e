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
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from math import inf
from typing import Annotated, Any, TypedDict, Unpack

from attrs import define, field
from msgspec import Meta

from integration_sdk.sandbox._allowed import Count, Span, Whole, span
from integration_sdk.sandbox._call import NOTHING, Answer, Call, Handler, Refused
from integration_sdk.sandbox._clock import Clock

Proceed = Callable[[], Awaitable[Answer]]
Act = Callable[[Call, Proceed], Awaitable[Answer]]
Seconds = float | Span | Callable[[], float]
"""Seconds: a fixed number, a random one between two, or what a function returns."""
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")
_IDENTIFIER = re.compile(r"[^/ ?#]*\d[^/?#]*")


class Scope(TypedDict, total=False):
    """When a rule applies.

    ``route``: ``"POST /push/"`` (a method, part of a path, or both; ``{anything}`` stands for one
    segment) or a compiled pattern that is searched in ``"POST /companies/..."``. ``skip``: number
    of matching calls to skip first. ``times``: maximum number of calls it applies to.
    ``probability``: of applying to a call.
    """

    route: str | re.Pattern[str]
    skip: Whole | None
    times: Count | None
    probability: Annotated[float, Meta(ge=0, le=1)]


@define(eq=False)
class Rule:
    """A fault in force.

    Args:
        in_front: Whether it acts in front of the service, not within.
        since: Service time from which it has an effect.
        until: Service time from which it has none any more.
        limits: Whether it looks at each call in order to refuse some.
        hits: Number of calls it has applied to; those it refused, if it limits.
        entry: The fault's name and arguments, as in a file of faults.
    """

    act: Act = field(repr=False)
    matches: Callable[[Call], bool] = field(repr=False)
    chance: random.Random = field(repr=False)
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    in_front: bool = False
    limits: bool = False
    since: float = -inf
    until: float = inf
    hits: int = 0
    entry: Mapping[str, Any] = NOTHING
    _seen: int = 0

    def is_over(self, now: float) -> bool:
        """Return whether it will not apply to any more calls."""
        return now >= self.until or (self.times is not None and self.hits >= self.times)

    def applies(self, call: Call) -> bool:
        """Return whether it applies to *call*, and count the call if so."""
        if call.now < self.since or self.is_over(call.now) or not self.matches(call):
            return False
        self._seen += 1
        if self._seen <= self.skip or self.chance.random() >= self.probability:
            return False
        self.hits += not self.limits
        return True

    async def carry_out(self, call: Call, proceed: Proceed) -> Answer:
        """Do to *call* what it does, and count a refusal of one that limits."""
        try:
            return await self.act(call, proceed)
        except Refused:
            self.hits += self.limits
            raise


class Rules:
    """The rules in force.

    Args:
        clock: The service's.
        chance: Seeds the random numbers of every rule.
        refuse: Turns a refusal into an answer.
        samples: Calls that the service has, such as ``GET /companies``; others need a pattern.
        published: Whether the service speaks the published dialect.
    """

    def __init__(
        self,
        clock: Clock,
        chance: random.Random,
        refuse: Callable[[Refused], Answer],
        samples: Collection[str],
        *,
        published: bool,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._refuse = refuse
        self._samples = samples
        self._published = published
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
                        return await rule.carry_out(call, proceed)
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
        return self._add(act, scope, in_front=in_front, outermost=outermost)

    def _add(
        self,
        act: Act,
        scope: Scope,
        *,
        only: re.Pattern[str] | None = None,
        in_front: bool = False,
        outermost: bool = False,
        limits: bool = False,
    ) -> Rule:
        """Add a fault; *only* says which calls it can concern, whatever the route is."""
        rule = Rule(
            act,
            self._matcher(scope.get("route", ""), only),
            random.Random(self._chance.random()),
            scope.get("skip") or 0,
            scope.get("times"),
            scope.get("probability", 1.0),
            in_front or outermost,
            limits,
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
        only: re.Pattern[str] | None = None,
        in_front: bool = True,
    ) -> Rule:
        async def act(call: Call, proceed: Proceed) -> Answer:
            raise refusal()

        rule = self._add(act, scope, only=only, in_front=in_front)
        rule.since = self._clock.now() + delay
        rule.until = inf if seconds is None else rule.since + seconds
        return rule

    def _draw(self, seconds: Seconds) -> Callable[[], float]:
        if callable(seconds):
            return seconds
        low, high = span("seconds", *(seconds if isinstance(seconds, tuple) else (seconds,) * 2))
        chance = random.Random(self._chance.random())
        return lambda: chance.uniform(low, high)

    def _matcher(
        self, route: str | re.Pattern[str], only: re.Pattern[str] | None
    ) -> Callable[[Call], bool]:
        pattern = route if isinstance(route, re.Pattern) else re.compile(_pattern(route))

        def fits(call: str, pattern: re.Pattern[str] = pattern) -> bool:
            return bool(pattern.search(call) and (only is None or only.search(call)))

        if isinstance(route, str) and (only or route.strip().upper() not in {"", *METHODS}):
            # An identifier may be any text, but is hardly ever without a digit.
            general = re.compile(_pattern(_IDENTIFIER.sub("{id}", route)))
            if not any(fits(sample, general) for sample in self._samples):
                raise ValueError(
                    f"route {route!r} matches no call that this fault can concern; "
                    "for an address that the service does not have, give a compiled pattern"
                )
        return lambda call: fits(f"{call.method} {call.path.removesuffix('/')}")


def _pattern(route: str) -> str:
    method, _, path = route.strip().rpartition(" ")
    if not method and path.upper() in METHODS:
        method, path = path, ""
    if method and method.strip().upper() not in METHODS:
        raise ValueError(f"route must be a method, part of a path or both, not {route!r}")
    parts = "[^/]+".join(map(re.escape, _PLACEHOLDER.split(path)))
    return f"^{method.strip().upper() or '[^ ]+'} .*{parts}"
