"""The values that pass through the sandbox: calls, answers and refusals.

A handler gets a `Call` and returns an `Answer` or raises `Refused`, which becomes the documented
error body. An answer is a plain value, even if it is to be cut: only `_http` uses sockets.

Source: "Resources and their fields", Error body; "Errors", Other rules 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
from attrs import define, field, frozen

from integration_sdk.sandbox._clock import Clock

JSON = "application/json; charset=utf-8"
NOTHING: Mapping[str, str] = {}
Forgery = Literal["signature", "secret", "key", "early"]

encode = msgspec.json.Encoder(decimal_format="number").encode
_decoder = msgspec.json.Decoder(float_hook=Decimal)
DEEPEST = 100
"""Levels of a body or a filter, at most: whatever reads them by recursion has room for these."""


def decode(body: bytes) -> Any:
    """JSON to plain values, with every fraction an exact Decimal."""
    return _decoder.decode(body)


@frozen
class Answer:
    """An answer of the service.

    Args:
        dropped: Whether the connection is cut in place of any answer.
        pieces: Yields the body as it is sent; after less than all of it the connection is cut.
        aside: Whether it is about the sandbox itself, so neither counted nor remembered.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = NOTHING
    content_type: str = JSON
    dropped: bool = False
    pieces: Callable[[bytes], AsyncIterator[bytes]] | None = None
    aside: bool = False


def answer(value: object, status: int = 200, headers: Mapping[str, str] = NOTHING) -> Answer:
    """*value* as JSON."""
    return Answer(status, encode(value), headers)


@frozen
class Problem:
    """An entry of ``validation.errors``: the item, the message, the validator."""

    item: str | None
    message: str
    validator: str | None = None

    def body(self) -> dict[str, str | None]:
        """The entry as the service writes it; parts that are None are left out."""
        entry = {
            "itemId": self.item,
            "message": self.message,
            "validatorName": self.validator,
        }
        return {name: value for name, value in entry.items() if value is not None}


@frozen
class Notice:
    """One notification of the end of a push.

    Args:
        delay: Seconds after the end at which it is sent.
        forged: What is wrong with it, if anything (`Faults.forge_notifications`).
    """

    delay: float = 0.0
    forged: Forgery | None = None


Notices = tuple[Notice, ...]


@frozen
class World:
    """What the faults in force change about the world for one call.

    Args:
        page_size_cap: Maximum items of a page.
        list_lag: Seconds until a push appears in the list.
        push_seconds: Returns the seconds that a push takes; None for the sandbox's own.
        push_failure: Why the platform refuses the push, if it does.
        late_effect: Returns after how many seconds a push takes effect that has timed out.
        notices: The notifications that subscribers get of the push's end.
    """

    page_size_cap: int = 5000
    list_lag: float = 0.0
    push_seconds: Callable[[], float] | None = None
    push_failure: Problem | None = None
    late_effect: Callable[[], float] | None = None
    notices: Notices = (Notice(),)


AS_IT_IS = World()


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
"""Source: "Status codes"; the words are ours where it has a sentence."""


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
        self.status = status
        self.error = error or ERRORS.get(status, "Error")
        super().__init__(status, self.error)
        self.problems = problems
        self.headers = headers

    def answer(self, correlation_id: str) -> Answer:
        """The error body, to be quoted by *correlation_id*."""
        body: dict[str, object] = {
            "statusCode": self.status,
            "service": "Sandbox",
            "error": self.error,
            "correlationId": correlation_id,
        }
        if self.problems:
            errors = [problem.body() for problem in self.problems]
            body["validation"] = {"errors": errors, "warnings": []}
        body |= {"canBeRetried": "Unknown", "detailedErrorCode": 0}
        return answer(body, self.status, self.headers)


def bad_request(item: str, message: str, validator: str = "Request") -> Refused:
    """400 that names the *item* at fault."""
    return Refused(400, f"Bad request: {message}", [Problem(item, message, validator)])


def not_found(what: str) -> Refused:
    """404 for a thing that is not there."""
    return Refused(404, f"NotFound: {what}")


@define
class Call:
    """One request, and the state of the world it applies to.

    Attributes:
        path: As sent, without the query.
        params: Query parameters, decoded, in the order sent.
        names: Values of the route's ``{placeholders}``.
        is_from_here: Whether a program of this machine sent it.
    """

    clock: Clock
    method: str
    path: str
    params: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes
    segments: list[str]
    names: dict[str, str] = field(factory=dict)
    world: World = AS_IT_IS
    is_from_here: bool = False

    @property
    def company_id(self) -> str | None:
        """The company that the path names, if any."""
        parts = self.segments
        return parts[1] if len(parts) > 1 and parts[0] == "companies" else None

    @property
    def now(self) -> float:
        """The service's time."""
        return self.clock.now()

    def param(self, name: str) -> str | None:
        """The query parameter *name*, the last one if there are several."""
        found = [value for key, value in self.params if key == name]
        return found[-1] if found else None

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
        """The body as a JSON object, or 400."""
        try:
            value = decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
            raise bad_request("body", f"the body is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise bad_request("body", "the body must be a JSON object")
        if _is_deep(value, self.body):
            raise bad_request("body", f"the body is nested more than {DEEPEST} levels deep")
        return value


def _is_deep(value: Any, body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return False
    level = [value]
    for _ in range(DEEPEST + 1):
        holders = [each for each in level if isinstance(each, dict | list)]
        level = [x for each in holders for x in (each.values() if isinstance(each, dict) else each)]
    return bool(level)


Respond = Callable[[Call], Awaitable[Answer]]
Refuse = Callable[[Refused], Answer]
