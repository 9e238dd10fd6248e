"""What a client's resources share: its session, settings, dialect, and what it remembers."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from attrs import Factory, define, frozen

from integration_sdk._http import CallOptions, Session, responses
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._options.check import PushOptions
from integration_sdk._options_given import Numbers
from integration_sdk._push.wire import read_any
from integration_sdk._records.codec import Json
from integration_sdk._records.shapes import structure
from integration_sdk._text import warn_if_legacy
from integration_sdk.dialect import Dialect
from integration_sdk.errors import MalformedResponse, NotFound, NotSent, fresh_copy
from integration_sdk.models import Answer, Problem, PropertyDescription, PushOperation

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")

MOST_WARNINGS: Final = 1000
"""Maximum number of kinds of warnings that are logged."""
MOST_REMEMBERED: Final = 1000
OPTIONS_TTL: Final = 300.0
"""Seconds for which push options are remembered."""
REFUSAL_TTL: Final = 30.0
"""Seconds for which it is remembered that there are none."""


@define
class Remembered:
    """The last answers to questions that many tasks ask, by request target.

    One task asks at a time. A 404 is an answer, too; other errors are not remembered.
    """

    _answers: dict[str, tuple[float, Any]] = Factory(dict)
    """Each with the time at which it was asked for, oldest first."""
    _asking: WeakValueDictionary[str, asyncio.Lock] = Factory(WeakValueDictionary)

    async def get(
        self,
        target: str,
        ask: Callable[[], Awaitable[T]],
        *,
        since: float,
        timeout: float | None,
    ) -> T:
        """Return the answer for *target*, unless it is older than *since* the one that *ask* gives.

        Raises:
            NotFound: That is the answer.
            NotSent: Another task has been asking for *timeout* seconds.
        """
        asking = self._asking.setdefault(target, asyncio.Lock())
        try:
            async with asyncio.timeout(timeout):
                await asking.acquire()
        except TimeoutError:
            why = f"another task has been asking for it for {timeout:g} s"
            raise NotSent(f"GET {target} was not sent: {why}") from None
        try:
            asked_at, answer = self._answers.pop(target, (-math.inf, None))
            now = asyncio.get_running_loop().time()
            if isinstance(answer, NotFound):
                since = max(since, now - REFUSAL_TTL)
            if asked_at < since:
                asked_at = now
                try:
                    answer = await ask()
                except NotFound as error:
                    answer = error
            self._answers[target] = asked_at, answer
            if len(self._answers) > MOST_REMEMBERED:
                del self._answers[next(iter(self._answers))]
        finally:
            asking.release()
        if isinstance(answer, NotFound):
            raise fresh_copy(answer)
        found: T = answer
        return found


@frozen
class RequestContext:
    """Sends requests with the settings of one client.

    Attributes:
        dialect: The version of the service.
        session: Shared by all clients that ``with_options`` derived.
        settings: Timeout, retries, priority and headers of each call.
        numbers: How fractions are read, unless ``list(numbers=)`` says otherwise.
        remembered: Push options, and how far data are read.
        warned: Kinds of warnings that have been logged.
    """

    dialect: Dialect
    session: Session
    settings: CallOptions
    numbers: Numbers = "float"
    remembered: Remembered = Factory(Remembered)
    warned: set[tuple[str, str, str]] = Factory(set)

    async def send(self, request: Request) -> Response:
        """Send *request* and return the answer, whatever its status; see `Session.send`."""
        return await self.session.send(request, self.settings)

    async def send_once(
        self, request: Request, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        """Send *request* exactly once; see `Session.send_once`."""
        return await self.session.send_once(request, self.settings, before=before)

    async def json(self, request: Request) -> Json:
        """Send *request* and return the decoded body."""
        body = responses.read_json(request, await self.send(request), numbers=self.numbers)
        warn_if_legacy(request, request.replacement)
        return body

    async def record(self, request: Request) -> dict[str, Any]:
        """Send *request* and return the JSON object in the answer, or an empty one."""
        body = await self.json(request)
        if not isinstance(body, dict | None):
            raise MalformedResponse(f"{request} must answer with an object, not {body!r:.80}")
        return body or {}

    async def answer(self, request: Request) -> Answer:
        """Send *request* and return the answer, undecoded.

        Raises:
            ApiError: Its status is not 2xx.
        """
        response = responses.check(request, await self.send(request))
        warn_if_legacy(request, request.replacement)
        return Answer(status=response.status, headers=response.headers, body=response.body)

    async def push(self, request: Request) -> PushOperation:
        """Send *request* and return the push operation in the answer.

        One that cannot be read in full has its key, company and status; see `read_any`.
        """
        response = responses.check(request, await self.send(request))
        operation: PushOperation = responses.placed(
            request, response, read_any, response.body, numbers=self.numbers
        )
        return operation

    async def options(self, request: Request, *, refresh: bool = False) -> PushOptions:
        """Return push options; without *refresh*, some minutes old."""

        async def ask() -> PushOptions:
            response = await self.send(request)
            value = responses.read_json(request, response)
            return PushOptions.of(
                responses.placed(request, response, structure, value, PropertyDescription)
            )

        now = asyncio.get_running_loop().time()
        since = math.inf if refresh else now - OPTIONS_TTL
        timeout = self.settings.timeout
        return await self.remembered.get(request.target, ask, since=since, timeout=timeout)

    def warn(self, place: str, problem: Problem) -> None:
        """Log a warning about records pushed to *place*, each kind once."""
        kind = (place, problem.code, re.sub(r"\d+", "", problem.path))
        if kind not in self.warned and len(self.warned) < MOST_WARNINGS:
            self.warned.add(kind)
            logger.warning("%s: %s", place, problem)
