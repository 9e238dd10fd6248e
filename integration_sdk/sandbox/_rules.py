"""What a fault is, when it applies to a call, and the faults in force."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import Annotated, Any, ClassVar

import msgspec
from attrs import define, field
from msgspec import Meta

from integration_sdk.sandbox._call import Answer, Call, Refused, Respond, World
from integration_sdk.sandbox._routes import samples
from integration_sdk.sandbox._service import Count, Seconds, Service, Whole, checked

Proceed = Callable[[], Awaitable[Answer]]
Act = Callable[[Call, Proceed], Awaitable[Answer]]
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")
_IDENTIFIER = re.compile(r"[^/ ?#]*\d[^/?#]*")


class Fault(msgspec.Struct, kw_only=True, tag_field="fault", omit_defaults=True):
    """A fault as data: its own arguments, and when it applies.

    Args:
        route: A method, part of a path, or both, such as ``POST /push/``; ``{anything}`` stands for
            one segment. With ``^`` in front it is a regular expression, searched in
            ``POST /companies/...``.
        skip: Matching calls that it leaves alone at first.
        times: To how many calls it applies at most.
        probability: Whether it applies to a matching call, by the sandbox's seeded chance.
    """

    route: str = ""
    skip: Whole = 0
    times: Count | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0

    # Which calls it can concern, whatever the route is: a regular expression.
    only: ClassVar[str] = ""
    in_front: ClassVar[bool] = False
    outermost: ClassVar[bool] = False
    # Whether it looks at each call in order to refuse some; its hits are what it refused.
    limits: ClassVar[bool] = False

    def lasts(self) -> float:
        """Return how many seconds of the service's time it lasts."""
        return inf

    def world(self, rule: Rule, world: World) -> World:
        return world

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        call.world = self.world(rule, call.world)
        return await proceed()


@define(eq=False)
class Rule:
    """A fault in force.

    Attributes:
        in_front: Whether it acts in front of the service, not within.
        until: Service time from which it has none any more.
        hits: Number of calls it has applied to; those it refused, if it limits.
        counts: What the fault counts.
    """

    fault: Fault
    chance: random.Random = field(repr=False)
    matches: Callable[[Call], bool] = field(repr=False)
    in_front: bool
    until: float
    hits: int = 0
    counts: dict[object, float] = field(factory=lambda: defaultdict(float), repr=False)
    _seen: int = 0

    def is_over(self, now: float) -> bool:
        return now >= self.until or self.hits >= (self.fault.times or inf)

    def draw(self, seconds: Seconds) -> float:
        return self.chance.uniform(*seconds) if isinstance(seconds, tuple) else seconds

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.fault, enc_hook=repr))
        return plain

    def applies(self, call: Call) -> bool:
        """Return whether it applies to *call*, and count the call if so."""
        if self.is_over(call.now) or not self.matches(call):
            return False
        self._seen += 1
        if self._seen <= self.fault.skip or self.chance.random() >= self.fault.probability:
            return False
        self.hits += not self.fault.limits
        return True

    async def carry_out(self, call: Call, proceed: Proceed) -> Answer:
        try:
            return await self.fault.act(self, call, proceed)
        except Refused:
            self.hits += self.fault.limits
            raise


class OwnFault(Fault):
    """A function of the caller's."""

    function: Any

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        answer: Answer = await self.function(call, proceed)
        return answer


def matcher(fault: Fault, known: list[str]) -> Callable[[Call], bool]:
    route, only = fault.route.strip(), re.compile(fault.only)
    if route.startswith("^"):
        pattern = re.compile(route)
    else:
        pattern = re.compile(_pattern(route))
        # An identifier may be any text, but is hardly ever without a digit.
        general = re.compile(_pattern(_IDENTIFIER.sub("{id}", route)))
        if (fault.only or route.upper() not in {"", *METHODS}) and not any(
            general.search(call) and only.search(call) for call in known
        ):
            raise ValueError(
                f"route {route!r} matches no call that this fault can concern; "
                "for an address that the service does not have, give a regular expression: ^..."
            )

    def matches(call: Call) -> bool:
        text = f"{call.method} {call.path.removesuffix('/')}"
        return bool(pattern.search(text) and only.search(text))

    return matches


def _pattern(route: str) -> str:
    method, _, path = route.rpartition(" ")
    if not method and path.upper() in METHODS:
        method, path = path, ""
    if method and method.strip().upper() not in METHODS:
        raise ValueError(f"route must be a method, part of a path or both, not {route!r}")
    parts = "[^/]+".join(map(re.escape, _PLACEHOLDER.split(path)))
    return f"^{method.strip().upper() or '[^ ]+'} .*{parts}"


class Rules:
    """The faults in force, in the order in which they wrap each other."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._chance = random.Random(f"{service.settings.seed}/faults")
        self._rules: list[Rule] = []

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    async def through(self, call: Call, respond: Respond, *, in_front: bool) -> Answer:
        """Pass *call* through the rules of a place that apply, and then to *respond*."""
        rules = iter([rule for rule in self._rules if rule.in_front == in_front])

        async def proceed() -> Answer:
            try:
                for rule in rules:
                    if rule.applies(call):
                        return await rule.carry_out(call, proceed)
                return await respond(call)
            except Refused as refused:
                return self._service.refuse(refused)

        return await proceed()

    def set(self, fault: Fault, *, in_front: bool = False, outermost: bool = False) -> Rule:
        """Put *fault* in force, in its own place or in this. ValueError if it cannot work."""
        fault = checked(msgspec.structs.asdict(fault), type(fault))
        matches = matcher(fault, samples(self._service.settings.dialect))
        chance = random.Random(self._chance.random())
        until = self._service.clock.now() + fault.lasts()
        outermost = outermost or fault.outermost
        in_front = in_front or outermost or fault.in_front
        rule = Rule(fault, chance, matches, in_front, until)
        self._rules.insert(0 if outermost else len(self._rules), rule)
        return rule

    def add(
        self, act: Act, *, in_front: bool = False, outermost: bool = False, **scope: Any
    ) -> Rule:
        """Add a fault of your own: *act* gets the call and a function that proceeds with it.

        It returns an `Answer` or raises `Refused`. It acts within the service, or *in_front* of
        it, or there as the *outermost* rule. *scope* says when it applies, as for any fault.
        """
        return self.set(OwnFault(act, **scope), in_front=in_front, outermost=outermost)

    def remove(self, rule: Rule) -> None:
        """End one fault."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """End all faults."""
        self._rules.clear()
