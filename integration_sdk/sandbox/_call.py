"""The values that pass through the sandbox: calls, answers, refusals, and the service's clock.

An endpoint gets a `Call` and returns an `Answer` or raises `Refused`, which becomes the documented
error body. An answer is a plain value, even if its connection is to be cut: only `_server` uses
sockets.

Source: "Resources and their fields", Error body; "Errors", Other rules 1.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Literal

import msgspec
from attrs import define, field, frozen

JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"
NOTHING: Mapping[str, str] = {}
LEFT_OUT: Any = object()
"""In place of a value of a body: its field is left out."""
encode = msgspec.json.Encoder(decimal_format="number").encode
decode = msgspec.json.Decoder(float_hook=Decimal).decode
"""JSON to plain values, with every fraction an exact Decimal."""

_BODIES: dict[str, Any] = decode(
    files("integration_sdk.sandbox").joinpath("_bodies.json").read_bytes()
)


def body(name: str, /, **values: Any) -> dict[str, Any]:
    """Return the *name* of ``_bodies.json`` with these *values*; those that are `LEFT_OUT` are."""
    filled: dict[str, Any] = _filled(_BODIES[name], values)
    return filled


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, dict):
        filled = {key: _filled(value, values) for key, value in template.items()}
        return {key: value for key, value in filled.items() if value is not LEFT_OUT}
    is_name = isinstance(template, str) and template[:1] == "$"
    return values[template[1:]] if is_name else template


def new_uuid(chance: random.Random) -> str:
    """A UUID by *chance*, so that a seed fixes it."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


class Clock:
    """Seconds since 1970 as the service sees them.

    It follows the running event loop's clock, so that a loop with virtual time drives the service
    too, and can be advanced by hand. Nothing in the sandbox sleeps until a push completes; its
    state is computed from ``now()`` when it is read.

    Args:
        starts: What the clock shows when the sandbox starts; None for the real time of day.

    Attributes:
        on_change: Called when it, or the end of a push, has been moved by hand.
    """

    def __init__(self, starts: datetime | None = None) -> None:
        if starts is not None and starts.tzinfo is None:
            starts = starts.replace(tzinfo=UTC)
        self._shown = time.time() if starts is None else starts.timestamp()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._zero = 0.0
        self.on_change: Callable[[], object] = lambda: None

    def follow(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Run with *loop*'s clock from here on; None stops at the current time."""
        self._shown, self._loop = self.now(), loop
        self._zero = loop.time() if loop is not None else 0.0

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        if self._loop is None:
            return self._shown
        return self._shown + self._loop.time() - self._zero

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Advance the clock. Time never goes back."""
        ahead = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if ahead < 0:
            raise ValueError("a clock cannot be advanced by a negative time")
        self._shown += ahead
        self.on_change()


def iso(moment: float, *, digits: int = 3) -> str:
    """*moment* as the service writes it: ``2023-03-01T12:00:00.250Z``.

    *digits* of the fraction are written, up to 7 (the published service's habit).
    """
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
    return f"{text[:26]}0"[: 20 + digits if digits else 19] + "Z"


@lru_cache(maxsize=8)
def http_date(moment: float) -> str:
    """*moment* as HTTP headers write it, rounded up to a whole second."""
    return formatdate(-(-moment // 1), usegmt=True)


@frozen
class Answer:
    """An answer of the service.

    Args:
        dropped: Whether the connection is cut in place of any answer.
        cut_at: After so many bytes of the body the connection is cut; None for never.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = NOTHING
    content_type: str = JSON
    dropped: bool = False
    cut_at: int | None = None


def answer(value: object, status: int = 200, headers: Mapping[str, str] = NOTHING) -> Answer:
    return Answer(status, encode(value), headers)


@frozen
class Problem:
    """An entry of ``validation.errors``: the item, the message, the validator."""

    item: str | None
    message: str
    validator: str | None = None

    def body(self) -> dict[str, str]:
        entry = {"itemId": self.item, "message": self.message, "validatorName": self.validator}
        return {name: value for name, value in entry.items() if value is not None}


_PHRASES = {each.value: each.phrase for each in HTTPStatus} | {404: "NotFound"}
"""Source: "Status codes"; "Other rules" 4."""


class Refused(Exception):
    """Raised to refuse a call; becomes the documented error body.

    Args:
        status: HTTP status, repeated in the body.
        error: The error text; None for the status's own.
        problems: Entries of ``validation.errors``; without any there is no ``validation``.
    """

    def __init__(
        self,
        status: int,
        error: str | None = None,
        problems: Sequence[Problem] = (),
        *,
        headers: Mapping[str, str] = NOTHING,
    ) -> None:
        self.status, self.headers, self.problems = status, headers, problems
        self.error = error or _PHRASES.get(status, "Error")
        super().__init__(status, self.error)

    def answer(self, correlation_id: str) -> Answer:
        """The error body, to be quoted by *correlation_id*."""
        problems = {"errors": [problem.body() for problem in self.problems], "warnings": []}
        values = {"status": self.status, "error": self.error, "correlation": correlation_id}
        written = body("error", **values, validation=problems if self.problems else LEFT_OUT)
        return answer(written, self.status, self.headers)


def bad_request(item: str, message: str, validator: str = "Request") -> Refused:
    """400 that names the *item* at fault."""
    return Refused(400, f"Bad request: {message}", [Problem(item, message, validator)])


def not_found(what: str) -> Refused:
    return Refused(404, f"NotFound: {what}")


def rate_headers(limit: int, remaining: float, reset: float) -> dict[str, str]:
    """``X-Rate-Limit-*``. Assumed: the reset is a moment in UTC."""
    return {
        "X-Rate-Limit-Limit": str(limit),
        "X-Rate-Limit-Remaining": str(max(0, int(remaining))),
        "X-Rate-Limit-Reset": iso(reset),
    }


Forgery = Literal["secret", "key", "early"]


@frozen
class Notice:
    """One notification of the end of a push, *delay* seconds after it; *forged*: `Faults`."""

    delay: float = 0.0
    forged: Forgery | None = None


@frozen
class World:
    """What the faults in force change about the world for one call."""

    page_size_cap: int = 5000
    list_lag: float = 0.0
    # None: as the sandbox's own settings say.
    push_seconds: float | None = None
    push_failure: Problem | None = None
    notices: tuple[Notice, ...] = (Notice(),)


UNCHANGED = World()


@define
class Call:
    """One request, and the state of the world it applies to.

    Attributes:
        path: As sent, without the query.
        params: Query parameters, decoded, in the order sent.
        segments: The path's parts, decoded, without a slash at the end.
        names: Values of the route's ``{placeholders}``.
    """

    clock: Clock
    method: str
    path: str
    params: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    segments: list[str]
    body: bytes = b""
    names: dict[str, str] = field(factory=dict)
    world: World = UNCHANGED

    @property
    def company_id(self) -> str | None:
        """The company that the path names, if any."""
        parts = self.segments
        return parts[1] if len(parts) > 1 and parts[0] == "companies" else None

    @property
    def now(self) -> float:
        return self.clock.now()

    def param(self, name: str) -> str | None:
        """The query parameter *name*, the last one if there are several."""
        return next((value for key, value in reversed(self.params) if key == name), None)

    def whole(self, name: str, most: int, validator: str = "Request") -> int | None:
        """The query parameter *name*, a whole number from 1 to *most* or 400; None without it."""
        text = self.param(name)
        if text is None:
            return None
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
        if not 1 <= number <= most:
            message = f"{name} must be a whole number from 1 to {most}"
            raise bad_request(name, message, validator)
        return number

    def json_object(self) -> dict[str, Any]:
        try:
            value = decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
            raise bad_request("body", f"the body is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise bad_request("body", "the body must be a JSON object")
        return value


Respond = Callable[[Call], Awaitable[Answer]]
