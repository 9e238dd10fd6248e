"""Faults on command: everything that goes wrong between a client and the service.

A new one is a class here and a line in `Faults`: for Python, pytest markers, files and
``POST /_page/faults`` alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import wraps
from math import inf
from typing import Annotated, Any, ClassVar, Generic, Literal, ParamSpec

import msgspec
from attrs import evolve
from msgspec import Meta

from integration_sdk.sandbox import _call as sent
from integration_sdk.sandbox._call import Answer, Call, Forgery, Problem, Refused, World
from integration_sdk.sandbox._rules import Fault, Proceed, Rule, Rules
from integration_sdk.sandbox._service import Count, Duration, HeaderText, Seconds, Whole

Status = Annotated[int, Meta(ge=200, le=599)]
RetryAfter = Annotated[float, Meta(ge=0, le=10**9)] | HeaderText
PUSH_LIST = "GET /companies/[^/]+/push$"


class Answering(Fault, kw_only=True):
    """A fault that answers in place of the service; with *processed*, after the work is done."""

    processed: bool = False

    def reply(self) -> Answer:
        """Return the answer, or raise Refused."""
        raise NotImplementedError

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        if self.processed:
            await proceed()
        return self.reply()


class StatusFault(Answering, tag="status"):
    """Answer *code*.

    A *body* of bytes or text is sent as it is, any other value as JSON, None gives the
    documented error body. With *processed* the request is carried out first: a push is
    recorded and its answer replaced.
    """

    code: Status
    body: Any = None
    headers: Mapping[HeaderText, HeaderText] = {}
    content_type: HeaderText = sent.JSON

    def reply(self) -> Answer:
        if self.body is None:
            raise Refused(self.code, headers=self.headers)
        body = self.body.encode() if isinstance(self.body, str) else self.body
        body = body if isinstance(body, bytes) else sent.encode(body)
        return Answer(self.code, body, self.headers, self.content_type)


class HtmlFromProxy(Answering, tag="html_from_proxy"):
    """A proxy answers with an HTML page; with *processed*, after the request is carried out."""

    status: Status = 502
    in_front: ClassVar[bool] = True

    def reply(self) -> Answer:
        page = f"<html><title>{self.status}</title><body>{self.status} from proxy</body></html>"
        return Answer(self.status, page.encode(), content_type=sent.HTML)


class Window(Answering):
    """A fault that lasts *seconds* of the service's time; None for good."""

    seconds: Duration | None = None

    def lasts(self) -> float:
        return inf if self.seconds is None else self.seconds


class NotReady(Window, tag="not_ready"):
    """409: the data set is not ready, for *seconds* of the service's time or for good."""

    def reply(self) -> Answer:
        raise Refused(409, "Conflict: the data set is not ready")


class Unavailable(Window, tag="unavailable"):
    """503 for *seconds* of the service's time; None for good."""

    retry_after: RetryAfter | None = None
    in_front: ClassVar[bool] = True

    def reply(self) -> Answer:
        raise Refused(503, headers=_retry_after(self.retry_after))


class NoPushList(Answering, tag="no_push_list"):
    """There is no list of pushes (404 or 405)."""

    status: Literal[404, 405] = 404
    only: ClassVar[str] = PUSH_LIST

    def reply(self) -> Answer:
        raise Refused(self.status)


class DropConnection(Fault, tag="drop_connection"):
    """Cut the connection instead of answering, *before* or after carrying out the request."""

    before: bool = True
    in_front: ClassVar[bool] = True

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        return Answer(dropped=True) if self.before else evolve(await proceed(), dropped=True)


class RateLimit(Fault, tag="rate_limit"):
    """429 to requests beyond the rate of a token bucket.

    The bucket holds *burst* tokens, one second's worth (at least one) if None.
    ``Retry-After`` tells *retry_after* or, if None, the time until the next token, in the
    *form* of whole seconds or an HTTP date, or not at all.
    """

    per_second: Annotated[float, Meta(gt=0, le=10**9)] = 100
    burst: Annotated[float, Meta(ge=1)] | None = None
    retry_after: RetryAfter | None = None
    form: Literal["seconds", "date", "none"] = "seconds"
    in_front: ClassVar[bool] = True
    limits: ClassVar[bool] = True

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        rate, holds = self.per_second, self.burst or max(1.0, self.per_second)
        # What is counted is when the bucket will be full again.
        full = max(rule.counts["full"], call.now)
        wait = max(0.0, (1 - holds) / rate + full - call.now)
        full = rule.counts["full"] = full if wait else full + 1 / rate
        headers = sent.rate_headers(max(1, int(rate)), holds - (full - call.now) * rate, full)
        if wait:
            later = wait if self.retry_after is None else self.retry_after
            if self.form != "none":
                headers |= _retry_after(later, self.form, call.now)
            raise Refused(429, headers=headers)
        answer = await proceed()
        return evolve(answer, headers={**answer.headers, **headers})


class ConcurrencyLimit(Fault, tag="concurrency_limit"):
    """429 to requests beyond this many at once, in *total*, *per_company* or both."""

    total: Count | None = None
    per_company: Count | None = None
    retry_after: RetryAfter | None = 1
    outermost: ClassVar[bool] = True  # so that time spent in other faults counts as work
    limits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.total is None and self.per_company is None:
            raise ValueError("say total= or per_company=, at least 1")

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        lanes = {"total": self.total, ("company", call.company_id): self.per_company}
        if any(most is not None and rule.counts[lane] >= most for lane, most in lanes.items()):
            raise Refused(429, headers=_retry_after(self.retry_after))
        for lane in lanes:
            rule.counts[lane] += 1
        try:
            return await proceed()
        finally:
            for lane in lanes:
                rule.counts[lane] -= 1


class Latency(Fault, tag="latency"):
    """Wait *seconds* before looking at a request."""

    seconds: Seconds
    in_front: ClassVar[bool] = True

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        await asyncio.sleep(rule.draw(self.seconds))
        return await proceed()


class LateAnswer(Fault, tag="late_answer"):
    """The request is carried out at once and answered *seconds* later."""

    seconds: Seconds

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        answer = await proceed()
        await asyncio.sleep(rule.draw(self.seconds))
        return answer


class Truncate(Fault, tag="truncate"):
    """Cut the connection after *at_byte* bytes of the answer's body."""

    at_byte: Whole
    in_front: ClassVar[bool] = True

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        return evolve(await proceed(), cut_at=self.at_byte)


class CapPageSize(Fault, tag="cap_page_size"):
    """Pages hold at most *size* items, whatever was asked for."""

    size: Count = 2000

    def world(self, rule: Rule, world: World) -> World:
        return evolve(world, page_size_cap=self.size)


class ListLag(Fault, tag="list_lag"):
    """Pushes appear in the list *seconds* after their request."""

    seconds: Duration
    only: ClassVar[str] = PUSH_LIST

    def world(self, rule: Rule, world: World) -> World:
        return evolve(world, list_lag=self.seconds)


class PushFault(Fault):
    """A fault of pushes. How a push ends is decided when it is accepted, with this in force."""

    only: ClassVar[str] = "(POST|PUT|DELETE) .*/push/"


class LoseAnswer(PushFault, tag="lose_answer"):
    """The push is recorded and its answer lost."""

    in_front: ClassVar[bool] = True

    async def act(self, rule: Rule, call: Call, proceed: Proceed) -> Answer:
        return evolve(await proceed(), dropped=True)


class PushSeconds(PushFault, tag="push_seconds"):
    """Asynchronous platforms take *seconds* for a push."""

    seconds: Seconds

    def world(self, rule: Rule, world: World) -> World:
        return evolve(world, push_seconds=rule.draw(self.seconds))


class FailNextPush(PushFault, tag="fail_next_push"):
    """The next push, or the next ``times=``, fails with *message*."""

    message: str
    item: str | None = None

    def __post_init__(self) -> None:
        self.times = self.times or 1

    def world(self, rule: Rule, world: World) -> World:
        return evolve(world, push_failure=Problem(self.item, self.message, "PlatformValidator"))


class Notifications(PushFault, tag="notifications"):
    """What becomes of the notification of a push's end.

    It is sent *copies* times (0: it is lost) with the same id, each *delay* seconds late. One is
    forged, and sent before: ``secret``: it is signed with another secret. ``key``: it is authentic,
    but names a push that does not exist. ``early``: it is authentic, but claims Success as soon as
    the push is recorded.
    """

    copies: Whole = 1
    delay: Seconds = 0.0
    forge: Forgery | None = None

    def world(self, rule: Rule, world: World) -> World:
        notices = world.notices * self.copies
        late = [evolve(one, delay=one.delay + rule.draw(self.delay)) for one in notices]
        forged = [sent.Notice(forged=self.forge)] if self.forge else []
        return evolve(world, notices=(*forged, *late))


def _retry_after(
    value: float | str | None, form: str = "seconds", now: float = 0.0
) -> dict[str, str]:
    if value is None or isinstance(value, str):
        return {"Retry-After": value} if value is not None else {}
    date = sent.http_date(now + value)
    return {"Retry-After": date if form == "date" else str(int(-(-value // 1)))}


P = ParamSpec("P")


class Setter(Generic[P]):
    """A method of `Faults` that puts one in force; its arguments are those of the fault's class."""

    def __init__(self, kind: Callable[P, Fault]) -> None:
        self.kind = kind

    def __get__(self, faults: Faults, owner: type) -> Callable[P, Rule]:
        @wraps(self.kind)
        def setter(*args: P.args, **options: P.kwargs) -> Rule:
            return faults.set(self.kind(*args, **options))

        return setter


class Faults(Rules):
    """The faults in force. Each method sets one and returns its `Rule`, for `remove`.

    The methods are named as the faults in JSON: ``latency((1, 3))``, ``status(503, times=2)``. Each
    also takes when it applies: ``route="POST /push/"`` (a method, a part of the path, or both; with
    ``^`` in front a regular expression), ``skip``, ``times`` and ``probability``. A fault of pushes
    concerns pushes only, whatever its route.

    Rules wrap each other in the order they were set, the first outermost; refusals reach them as
    answers. Those *in front* of the service apply to replayed idempotent answers too, and their
    answers are neither kept nor counted; all others act behind the checks of key, quota and kept
    answers.

    Raises:
        ValueError: A value cannot work, or the route matches no call that the service has.
    """

    status = Setter(StatusFault)
    html_from_proxy = Setter(HtmlFromProxy)
    not_ready = Setter(NotReady)
    unavailable = Setter(Unavailable)
    rate_limit = Setter(RateLimit)
    concurrency_limit = Setter(ConcurrencyLimit)
    latency = Setter(Latency)
    late_answer = Setter(LateAnswer)
    drop_connection = Setter(DropConnection)
    truncate = Setter(Truncate)
    cap_page_size = Setter(CapPageSize)
    no_push_list = Setter(NoPushList)
    list_lag = Setter(ListLag)
    lose_answer = Setter(LoseAnswer)
    push_seconds = Setter(PushSeconds)
    fail_next_push = Setter(FailNextPush)
    notifications = Setter(Notifications)

    def __repr__(self) -> str:
        return f"Faults({', '.join(map(str, self.listed()))})"

    def add_named(self, name: object = None, /, *args: Any, **options: Any) -> Rule:
        """Set the fault *name*. ValueError or TypeError if there is none, or it cannot work."""
        if name not in KINDS:
            raise ValueError(f"there is no fault {name!r}: give one of {', '.join(sorted(KINDS))}")
        return self.set(KINDS[str(name)](*args, **options))

    def add_listed(self, text: bytes) -> None:
        """Set faults from JSON: ``[{"fault": "latency", "seconds": [1, 3], "route": "GET"}, ...]``.

        ValueError if it is no such list, or an entry cannot work; none is set then.
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
        """End the faults that are `listed` so, whatever their hits; all if *text* is empty."""
        ended = [{**entry, "hits": 0} for entry in _entries(text or b"[]")]
        self._rules = [rule for rule in self if text and {**rule.plain(), "hits": 0} not in ended]


KINDS: Mapping[str, Callable[..., Fault]] = {
    name: each.kind for name, each in vars(Faults).items() if isinstance(each, Setter)
}


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        example = '[{"fault": "latency", "seconds": [1, 3]}]'
        raise ValueError(f"faults are a JSON list such as {example}: {error}") from None
