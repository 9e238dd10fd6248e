"""Faults on command: everything that goes wrong between a client and the service.

Each method of `Faults` adds a rule and returns it. A rule is a function wrapped around the rest of
the call: it may answer or refuse, wait, change the answer, or change the world for that call. The
rules of a place wrap each other in the order they were added, the first outermost; refusals reach
them as answers.

Maintenance, throttles, proxies, latency and broken connections act in front of the service: they
apply to replayed idempotent answers too, and their answers are neither kept nor counted. All
others act within it, after the checks of key, quota and kept answers.

A new fault is one more method here. Its name, arguments and annotations are all that Python,
pytest markers, files and ``POST /_page/faults`` need to take it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from inspect import signature
from itertools import chain, repeat
from math import inf
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar, Unpack, get_type_hints

import msgspec
from attrs import define, evolve, field
from msgspec import Meta

from integration_sdk.sandbox._account import account_expired, rate_headers
from integration_sdk.sandbox._call import (
    JSON,
    NOTHING,
    Answer,
    Call,
    Forgery,
    Notice,
    Notices,
    Problem,
    Refused,
    Respond,
    decode,
    encode,
)
from integration_sdk.sandbox._clock import http_date, iso
from integration_sdk.sandbox._routes import samples
from integration_sdk.sandbox._service import Service
from integration_sdk.sandbox._settings import (
    Count,
    Duration,
    HeaderText,
    Span,
    Whole,
    allowed,
    new_uuid,
    span,
)

Proceed = Callable[[], Awaitable[Answer]]
Act = Callable[[Call, Proceed], Awaitable[Answer]]
Seconds = float | Span | Callable[[], float]
"""Seconds: a fixed number, a random one between two, or what a function returns."""
Status = Annotated[int, Meta(ge=200, le=599)]
Rate = Annotated[float, Meta(gt=0, le=10**9)]
RetryAfter = Annotated[float, Meta(ge=0, le=10**9)]
HTML = "text/html; charset=utf-8"
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
PUSHES = re.compile(r"(POST|PUT|DELETE) .*/push/")
PUSH_LIST = re.compile(r"GET /companies/[^/]+/push$")
DATA_LISTS = re.compile(r"GET /companies/[^/]+/data/(?!bankAccounts)[^/]+$")
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")
_IDENTIFIER = re.compile(r"[^/ ?#]*\d[^/?#]*")


class Scope(TypedDict, total=False):
    """When a rule applies; `Faults` says what each of them means."""

    route: str | re.Pattern[str]
    skip: Whole | None
    times: Count | None
    probability: Annotated[float, Meta(ge=0, le=1)]


@define(eq=False)
class Rule:
    """A fault in force.

    Attributes:
        in_front: Whether it acts in front of the service, not within.
        limits: Whether it looks at each call in order to refuse some.
        since: Service time from which it has an effect.
        until: Service time from which it has none any more.
        hits: Number of calls it has applied to; those it refused, if it limits.
        entry: The fault's name and arguments, as in a file of faults.
    """

    act: Act = field(repr=False)
    matches: Callable[[Call], bool] = field(repr=False)
    chance: random.Random = field(repr=False)
    scope: Scope
    in_front: bool = False
    limits: bool = False
    since: float = -inf
    until: float = inf
    hits: int = 0
    entry: Mapping[str, Any] = NOTHING
    _seen: int = 0

    def is_over(self, now: float) -> bool:
        """Return whether it will not apply to any more calls."""
        return now >= self.until or self.hits >= (self.scope.get("times") or inf)

    def plain(self) -> Any:
        """Return its entry as JSON has it; what JSON cannot hold is described."""
        return msgspec.json.decode(msgspec.json.encode(self.entry, enc_hook=repr))

    def applies(self, call: Call) -> bool:
        """Return whether it applies to *call*, and count the call if so."""
        if call.now < self.since or self.is_over(call.now) or not self.matches(call):
            return False
        self._seen += 1
        if self._seen <= (self.scope.get("skip") or 0):
            return False
        if self.chance.random() >= self.scope.get("probability", 1.0):
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


def _answering(answer: Callable[[], Answer | Refused], *, processed: bool = False) -> Act:
    """Answer in place of the service; with *processed*, after the request is carried out."""

    async def act(call: Call, proceed: Proceed) -> Answer:
        if processed:
            await proceed()
        told = answer()
        if isinstance(told, Refused):
            raise told
        return told

    return act


def _changing(**changes: Any) -> Act:
    """Change parts of the answer on its way."""

    async def act(call: Call, proceed: Proceed) -> Answer:
        return evolve(await proceed(), **changes)

    return act


def _world(**changes: Any) -> Act:
    """Change the world for a call."""

    async def act(call: Call, proceed: Proceed) -> Answer:
        call.world = evolve(call.world, **changes)
        return await proceed()

    return act


def _told(change: Callable[[Notices], Notices]) -> Act:
    """Change the notifications of a push."""

    async def act(call: Call, proceed: Proceed) -> Answer:
        call.world = evolve(call.world, notices=change(call.world.notices))
        return await proceed()

    return act


class Rules:
    """The rules in force, and how they are added and ended.

    Args:
        service: What they act upon; a route has to match one of its calls, or be a pattern.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._chance = random.Random(f"{service.settings.seed}/faults")
        self._samples = samples(service.settings.dialect)
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

    def add(
        self, act: Act, *, in_front: bool = False, outermost: bool = False, **scope: Unpack[Scope]
    ) -> Rule:
        """Add a fault of your own: *act* gets the call and a function that proceeds with it.

        It returns an `Answer` or raises `Refused`.
        It acts within the service, or *in_front* of it, or there as the *outermost* rule.
        """
        return self._add(act, scope, in_front=in_front, outermost=outermost)

    def add_named(self, name: object = None, /, *args: Any, **options: Any) -> Rule:
        """Add the fault *name*.

        Raises:
            ValueError, TypeError: There is no fault of this name, or its arguments are wrong.
        """
        if name not in NAMES:
            raise ValueError(f"there is no fault {name!r}: give one of {', '.join(NAMES)}")
        rule: Rule = getattr(self, str(name))(*args, **options)
        return rule

    def add_listed(self, text: bytes) -> None:
        """Add faults from JSON: ``[{"fault": "latency", "seconds": [1, 3], "route": "GET"}, ...]``.

        Raises:
            ValueError: It is no such list, or an entry is no valid fault; none is added.
        """
        before = list(self._rules)
        for number, options in enumerate(_entries(text), 1):
            try:
                self.add_named(options.pop("fault", None), **options)
            except (ValueError, TypeError) as error:
                self._rules = before
                raise ValueError(f"fault {number}: {error}") from None

    def listed(self, now: float | None = None) -> list[dict[str, Any]]:
        """Return entries for `add_listed`, with their hits; without those that are over *now*."""
        rules = [rule for rule in self if now is None or not rule.is_over(now)]
        return [{**rule.plain(), "hits": rule.hits} for rule in rules]

    def end_listed(self, text: bytes) -> None:
        """End the faults that are `listed` so, whatever their hits; all if *text* is empty.

        Raises:
            ValueError: It is no list of faults.
        """
        ended = [{**entry, "hits": 0} for entry in _entries(text or b"[]")]
        self._rules = [rule for rule in self if text and {**rule.plain(), "hits": 0} not in ended]

    def remove(self, rule: Rule) -> None:
        """End one fault."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """End all faults."""
        self._rules.clear()

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
        matches = self._matcher(scope.get("route", ""), only)
        chance = random.Random(self._chance.random())
        rule = Rule(act, matches, chance, scope, in_front or outermost, limits)
        self._rules.insert(0 if outermost else len(self._rules), rule)
        return rule

    def _lasting(self, rule: Rule, seconds: float | None, delay: float = 0.0) -> Rule:
        """Limit *rule* to *seconds* of the service's time, beginning in *delay*."""
        rule.since = self._service.clock.now() + delay
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


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        example = '[{"fault": "latency", "seconds": [1, 3]}]'
        raise ValueError(f"faults are a JSON list such as {example}: {error}") from None


def _pattern(route: str) -> str:
    method, _, path = route.strip().rpartition(" ")
    if not method and path.upper() in METHODS:
        method, path = path, ""
    if method and method.strip().upper() not in METHODS:
        raise ValueError(f"route must be a method, part of a path or both, not {route!r}")
    parts = "[^/]+".join(map(re.escape, _PLACEHOLDER.split(path)))
    return f"^{method.strip().upper() or '[^ ]+'} .*{parts}"


T = TypeVar("T", bound=Rules)
NAMES: Final[list[str]] = []
"""The names of all faults."""
_SCOPE: Final = get_type_hints(Scope, include_extras=True) | {"route": str}


def _checked(faults: type[T]) -> type[T]:
    """Make the methods of *faults* check their arguments, and note them in the `Rule`."""
    for name, method in {"add": faults.add, **vars(faults)}.items():
        if not name.startswith("_"):
            NAMES.append(name)
            setattr(faults, name, _checking(method))
    NAMES.sort()
    return faults


def _checking(method: Callable[..., Rule]) -> Callable[..., Rule]:
    names = [*list(signature(method).parameters)[1:-1], *Scope.__annotations__]
    types = get_type_hints(method, include_extras=True) | _SCOPE
    types |= {name: float | Span for name in names if types[name] == Seconds}

    @wraps(method)
    def add(self: Rules, *args: Any, **options: Any) -> Rule:
        for name in options.keys() - set(names):
            takes = ", ".join(names)
            raise TypeError(f"{name} is no argument of {method.__name__}: it takes {takes}")
        pairs = zip(chain(names, repeat("")), args, strict=False)
        given = [allowed(types.get(name, Any), name, value) for name, value in pairs]
        options = {name: allowed(types[name], name, value) for name, value in options.items()}
        rule = method(self, *given, **options)
        entry = dict(zip(names, given, strict=False))
        rule.entry = {"fault": method.__name__, **entry, **options}
        return rule

    return add


@_checked
class Faults(Rules):
    """The faults in force. Each method adds one and returns its `Rule`, for `remove`.

    Each also takes when it applies: ``route="POST /push/"`` (a method, part of a path, or both;
    ``{anything}`` stands for one segment) or a compiled pattern that is searched in
    ``"POST /companies/..."``; ``skip`` matching calls, ``times`` at most, with a ``probability``.
    A fault of pushes concerns pushes only, whatever its route. How a push ends, and how that is
    notified, is decided when it is accepted: such a fault applies to pushes made while it is in
    force.

    Raises:
        ValueError: A value cannot be, or the route matches no call that the service has. For
            other addresses, give a compiled pattern.
    """

    def status(
        self,
        code: Status,
        body: object = None,
        *,
        headers: Mapping[HeaderText, HeaderText] = NOTHING,
        content_type: HeaderText = JSON,
        processed: bool = False,
        **scope: Unpack[Scope],
    ) -> Rule:
        """Answer *code*.

        A *body* of bytes or text is sent as it is, any other value as JSON, None gives the
        documented error body. With *processed* the request is carried out first: a push is
        recorded and its answer replaced.
        """
        content = body.encode() if isinstance(body, str) else body
        content = content if isinstance(content, bytes) else encode(content)

        def answer() -> Answer | Refused:
            if body is None:
                return Refused(code, headers=headers)
            return Answer(code, content, headers, content_type)

        return self._add(_answering(answer, processed=processed), scope)

    def html_from_proxy(
        self, status: Status = 502, *, processed: bool = False, **scope: Unpack[Scope]
    ) -> Rule:
        """A proxy answers with an HTML page; with *processed*, after the request is carried out."""
        page = f"<html><head><title>{status}</title></head><body>{status} from proxy</body></html>"
        answer = Answer(status, page.encode(), content_type=HTML)
        return self._add(_answering(lambda: answer, processed=processed), scope, in_front=True)

    def not_ready(self, seconds: Duration | None = None, **scope: Unpack[Scope]) -> Rule:
        """409: the data set is not ready, for *seconds* of the service's time or for good."""
        return self._lasting(self._add(_answering(partial(Refused, 409)), scope), seconds)

    def unavailable(
        self,
        seconds: Duration | None = None,
        *,
        delay: Duration = 0.0,
        retry_after: RetryAfter | HeaderText | None = None,
        **scope: Unpack[Scope],
    ) -> Rule:
        """503 for *seconds* of the service's time, beginning in *delay*; None for good."""
        refused = partial(Refused, 503, headers=_retry_after(retry_after))
        rule = self._add(_answering(refused), scope, in_front=True)
        return self._lasting(rule, seconds, delay)

    def expire_account(self, **scope: Unpack[Scope]) -> Rule:
        """402 to any request: the free account has expired."""
        return self._add(_answering(account_expired), scope, in_front=True)

    def no_push_list(self, status: Literal[404, 405] = 404, **scope: Unpack[Scope]) -> Rule:
        """There is no list of pushes (404 or 405)."""
        return self._add(_answering(partial(Refused, status)), scope, only=PUSH_LIST)

    def rate_limit(
        self,
        per_second: Rate = 100,
        *,
        burst: Annotated[float, Meta(ge=1)] | None = None,
        retry_after: RetryAfter | HeaderText | None = None,
        form: Literal["seconds", "date", "none"] = "seconds",
        **scope: Unpack[Scope],
    ) -> Rule:
        """429 to requests beyond the rate of a token bucket.

        The bucket holds *burst* tokens, one second's worth (at least one) if None.
        ``Retry-After`` tells *retry_after* or, if None, the time until the next token, in the
        *form* of whole seconds or an HTTP date, or not at all.
        """
        bucket = _Bucket(per_second, max(1, per_second) if burst is None else burst)

        async def act(call: Call, proceed: Proceed) -> Answer:
            wait = bucket.take(call.now)
            full = call.now + bucket.until_full()
            headers = rate_headers(max(1, int(per_second)), bucket.tokens, full)
            if wait > 0:
                told = wait if retry_after is None else retry_after
                headers |= _retry_after(None if form == "none" else told, form, call.now)
                raise Refused(429, headers=headers)
            answer = await proceed()
            return evolve(answer, headers={**answer.headers, **headers})

        return self._add(act, scope, in_front=True, limits=True)

    def concurrency_limit(
        self,
        total: Count | None = None,
        *,
        per_company: Count | None = None,
        retry_after: RetryAfter | HeaderText | None = 1,
        **scope: Unpack[Scope],
    ) -> Rule:
        """429 to requests beyond this many at once, in *total*, *per_company* or both."""
        if total is None and per_company is None:
            raise ValueError("say total= or per_company=, at least 1")
        working = Counter[tuple[str, str | None]]()

        async def act(call: Call, proceed: Proceed) -> Answer:
            lanes = {("total", None): total, ("company", call.company_id): per_company}
            if any(most is not None and working[lane] >= most for lane, most in lanes.items()):
                raise Refused(429, headers=_retry_after(retry_after))
            working.update(lanes.keys())
            try:
                return await proceed()
            finally:
                working.subtract(lanes.keys())

        # Outermost, so that time spent in other faults counts as work.
        return self._add(act, scope, outermost=True, limits=True)

    def latency(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Wait *seconds* before looking at a request."""
        draw = self._draw(seconds)

        async def act(call: Call, proceed: Proceed) -> Answer:
            await asyncio.sleep(draw())
            return await proceed()

        return self._add(act, scope, in_front=True)

    def late_answer(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """The request is carried out at once and answered *seconds* later."""
        draw = self._draw(seconds)

        async def act(call: Call, proceed: Proceed) -> Answer:
            answer = await proceed()
            await asyncio.sleep(draw())
            return answer

        return self._add(act, scope)

    def drop_connection(self, *, before: bool = True, **scope: Unpack[Scope]) -> Rule:
        """Cut the connection instead of answering, *before* or after carrying out the request."""
        if before:
            return self._add(_answering(lambda: Answer(dropped=True)), scope, in_front=True)
        return self._add(_changing(dropped=True), scope, in_front=True)

    def lose_answer(self, **scope: Unpack[Scope]) -> Rule:
        """The push is recorded and its answer lost."""
        return self._add(_changing(dropped=True), scope, only=PUSHES, in_front=True)

    def truncate(self, at_byte: Whole, **scope: Unpack[Scope]) -> Rule:
        """Cut the connection after *at_byte* bytes of the answer's body."""

        async def pieces(body: bytes) -> AsyncIterator[bytes]:
            yield body[:at_byte]

        return self._add(_changing(pieces=pieces), scope, in_front=True)

    def cap_page_size(self, size: Count = 2000, **scope: Unpack[Scope]) -> Rule:
        """Pages hold at most *size* items, whatever was asked for."""
        return self._add(_world(page_size_cap=size), scope)

    def list_lag(self, seconds: Duration, **scope: Unpack[Scope]) -> Rule:
        """Pushes appear in the list *seconds* after their request."""
        return self._add(_world(list_lag=seconds), scope, only=PUSH_LIST)

    def drift(
        self,
        *,
        insert: Whole = 0,
        edit: Whole = 0,
        delete: Whole = 0,
        at: Literal["front", "end", "anywhere"] = "front",
        **scope: Unpack[Scope],
    ) -> Rule:
        """Records of a data list come, change and go before each read of it.

        What comes or changes has its ``modifiedDate`` from the sandbox's clock, in whole seconds
        as after a push.
        """
        if not insert and not edit and not delete:
            raise ValueError("say insert=, edit= or delete=, at least 1")
        chance = random.Random(self._chance.random())

        def place(length: int) -> int:
            return {"front": 0, "end": length, "anywhere": chance.randrange(length + 1)}[at]

        async def act(call: Call, proceed: Proceed) -> Answer:
            records = self._service.data_set(call.segments[1], call.segments[3])
            stamp = iso(call.now, digits=0)
            stamps = {"modifiedDate": stamp, "sourceModifiedDate": stamp}
            for _ in range(min(delete, len(records))):
                records.delete_at(min(place(len(records)), len(records) - 1))
            edited = min(edit, len(records))
            first = max(place(len(records)) - edited, 0)
            for position in range(first, first + edited):
                records.edit_at(position, stamps)
            for _ in range(insert):
                like = decode(records.sample())
                records.insert(place(len(records)), like | stamps | {"id": new_uuid(chance)})
            return await proceed()

        return self._add(act, scope, only=DATA_LISTS)

    def push_seconds(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Asynchronous platforms take *seconds* for a push."""
        draw = self._draw(seconds)
        return self._add(_world(push_seconds=draw), scope, only=PUSHES)

    def fail_next_push(
        self, message: str, *, item: str | None = None, **scope: Unpack[Scope]
    ) -> Rule:
        """The next push, or the next ``times=``, fails with *message*."""
        scope.setdefault("times", 1)
        problem = Problem(item, message, "PlatformValidator")
        return self._add(_world(push_failure=problem), scope, only=PUSHES)

    def late_effect(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Pushes with a deadline are TimedOut, and take effect *seconds* after it all the same.

        Only in the ``published`` dialect, whose service may do so once the platform has the push.

        Raises:
            ValueError: The dialect is the document's, which guarantees that this never happens.
        """
        if not self._service.settings.published:
            raise ValueError(
                'late_effect needs dialect="published": the interface document guarantees that '
                "no push is processed after its deadline"
            )
        draw = self._draw(seconds)
        return self._add(_world(late_effect=draw), scope, only=PUSHES)

    def foreign_writer(
        self, record: Mapping[str, Any], *, before: bool = True, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else pushes *record* to the same place as a push, *before* or after it."""
        scope.setdefault("times", 1)

        def push(call: Call) -> None:
            _, company_id, _, connection_id, _, data_type, *_ = call.segments
            connection = self._service.connection(company_id, connection_id)
            self._service.push_by_another(connection, data_type, record)

        async def act(call: Call, proceed: Proceed) -> Answer:
            if before:
                push(call)
            answer = await proceed()
            if not before:
                push(call)
            return answer

        return self._add(act, scope, only=PUSHES)

    def lose_notifications(self, **scope: Unpack[Scope]) -> Rule:
        """Subscribers are not notified of the ends of these pushes."""
        return self._add(_told(lambda notices: ()), scope, only=PUSHES)

    def double_notifications(self, copies: Count = 2, **scope: Unpack[Scope]) -> Rule:
        """Each notification is sent *copies* times, with the same id."""
        return self._add(_told(lambda notices: notices * copies), scope, only=PUSHES)

    def delay_notifications(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Each notification is sent *seconds* late; with a span they overtake each other."""
        draw = self._draw(seconds)

        def delayed(notices: Notices) -> Notices:
            return tuple(evolve(one, delay=one.delay + draw()) for one in notices)

        return self._add(_told(delayed), scope, only=PUSHES)

    def forge_notifications(
        self, how: Forgery = "signature", *, instead: bool = False, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else sends a notification before the true one, or *instead* of it.

        ``signature``: its proof of origin is invalid. ``secret``: it is signed with another secret.
        ``key``: it is authentic, but names a push that does not exist. ``early``: it is
        authentic, but claims Success as soon as the push is recorded.
        """
        forged = Notice(forged=how)
        return self._add(
            _told(lambda notices: (forged, *(() if instead else notices))), scope, only=PUSHES
        )


@define
class _Bucket:
    """A token bucket that holds *tokens* at the time *at*."""

    per_second: float
    holds: float
    tokens: float = 0.0
    at: float | None = None

    def take(self, now: float) -> float:
        """Take a token and return 0, or the seconds until there is one."""
        since = self.holds if self.at is None else (now - self.at) * self.per_second
        self.tokens, self.at = min(self.holds, self.tokens + since), now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.per_second

    def until_full(self) -> float:
        """Seconds until the bucket is full again."""
        return (self.holds - self.tokens) / self.per_second


def _retry_after(
    value: float | str | None, form: str = "seconds", now: float = 0.0
) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"Retry-After": value}
    return {"Retry-After": http_date(now + value) if form == "date" else str(int(-(-value // 1)))}
