"""Faults on command: everything that goes wrong between a client and the service.

Each method of `Faults` adds a rule (`rules`) and returns it. All take ``route``, ``skip``,
``times`` and ``probability``, which say when it applies (`Scope`).

Maintenance, throttles, proxies, latency and broken connections act in front of the service: they
apply to replayed idempotent answers too, and their answers are neither kept nor counted. All
others act within the service.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Unpack

from attrs import define, evolve
from msgspec import Meta

from integration_sdk.sandbox._allowed import Count, Duration, HeaderText, Whole
from integration_sdk.sandbox._call import (
    JSON,
    NOTHING,
    Answer,
    Call,
    Refused,
    encode,
)
from integration_sdk.sandbox._clock import http_date
from integration_sdk.sandbox._faults.named import checked
from integration_sdk.sandbox._faults.rules import (
    Act,
    Proceed,
    Rule,
    Scope,
    Seconds,
)
from integration_sdk.sandbox._faults.world import PUSH_LIST, PUSHES, WorldFaults
from integration_sdk.sandbox._limits import account_expired, rate_headers

HTML = "text/html; charset=utf-8"
Status = Annotated[int, Meta(ge=200, le=599)]
Rate = Annotated[float, Meta(gt=0, le=10**9)]
RetryAfter = Annotated[float, Meta(ge=0, le=10**9)]
ERRORS = {
    400: "Bad request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "NotFound",
    405: "Method not allowed",
    409: "Conflict: the data set is not ready",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}


@checked
class Faults(WorldFaults):
    """The faults in force. Each method adds one and returns its `Rule`, for `remove`.

    Each also takes when it applies: ``route="POST /push/"`` (a method, part of a path, or both),
    ``skip`` calls, ``times`` at most, with a ``probability``. A fault of pushes concerns pushes
    only, whatever its route.

    Raises:
        ValueError: A value cannot be, or the route matches no call that the service has. For
            other addresses, give a compiled pattern.
    """

    # ------------------------------------------------------------------ refusals

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
        content = None if body is None else _bytes(body)

        def answer() -> Answer:
            if content is None:
                raise Refused(code, ERRORS.get(code, "Error"), headers=headers)
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
        return self._window(seconds, lambda: Refused(409, ERRORS[409]), scope, in_front=False)

    def unavailable(
        self,
        seconds: Duration | None = None,
        *,
        delay: Duration = 0.0,
        retry_after: RetryAfter | HeaderText | None = None,
        **scope: Unpack[Scope],
    ) -> Rule:
        """503 for *seconds* of the service's time, beginning in *delay*; None for good."""
        headers = _retry_after(retry_after)
        return self._window(
            seconds, lambda: Refused(503, ERRORS[503], headers=headers), scope, delay=delay
        )

    def expire_account(self, **scope: Unpack[Scope]) -> Rule:
        """402 to any request: the free account has expired."""
        return self._window(None, account_expired, scope)

    def no_push_list(self, status: Literal[404, 405] = 404, **scope: Unpack[Scope]) -> Rule:
        """There is no list of pushes (404 or 405)."""
        refused = Refused(status, ERRORS[status])
        return self._window(None, lambda: refused, scope, only=PUSH_LIST, in_front=False)

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
                raise Refused(429, ERRORS[429], headers=headers)
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
                raise Refused(429, ERRORS[429], headers=_retry_after(retry_after))
            working.update(lanes.keys())
            try:
                return await proceed()
            finally:
                working.subtract(lanes.keys())

        # Outermost, so that time spent in other faults counts as work.
        return self._add(act, scope, outermost=True, limits=True)

    # ------------------------------------------------------------------ time and transport

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
        return self._add(_cutting(before=before), scope, in_front=True)

    def lose_answer(self, **scope: Unpack[Scope]) -> Rule:
        """The push is recorded and its answer lost."""
        return self._add(_cutting(before=False), scope, only=PUSHES, in_front=True)

    def truncate(self, at_byte: Whole, **scope: Unpack[Scope]) -> Rule:
        """Cut the connection after *at_byte* bytes of the answer's body."""

        async def act(call: Call, proceed: Proceed) -> Answer:
            return evolve(await proceed(), cut=at_byte)

        return self._add(act, scope, in_front=True)


def _answering(answer: Callable[[], Answer], *, processed: bool) -> Act:
    async def act(call: Call, proceed: Proceed) -> Answer:
        if processed:
            await proceed()
        return answer()

    return act


def _cutting(*, before: bool) -> Act:
    async def act(call: Call, proceed: Proceed) -> Answer:
        answer = Answer() if before else await proceed()
        return evolve(answer, cut=-1)

    return act


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


def _bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else encode(body)
