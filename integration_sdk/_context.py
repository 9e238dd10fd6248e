"""What a client's resources share: its session, settings, dialect, and what it remembers."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from weakref import WeakValueDictionary

from attrs import Factory, define, field, frozen

from integration_sdk._http import CallOptions, Session, requests, responses
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._http.statuses import Meaning, Scope, row, scope_of
from integration_sdk._options.check import PushOptions
from integration_sdk._push.wire import read_any
from integration_sdk._records.codec import Json
from integration_sdk._records.shapes import structure
from integration_sdk._text import warn_if_legacy
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ApiError, MalformedResponse, fresh_copy
from integration_sdk.models import Answer, Problem, PropertyDescription, PushOperation

logger = logging.getLogger("integration_sdk.pushes")

MOST_WARNINGS = 1000
"""Maximum number of kinds of warnings that are logged."""
OPTIONS_TTL = 300.0
"""Seconds for which push options are cached."""
REFUSAL_TTL = 30.0
"""Seconds for which it is cached that there are no push options."""
MOST_OPTIONS = 1000


@define
class OptionsCache:
    """Push options, or the refusal of them, by request target; the oldest are dropped.

    Tasks that want the same options ask one at a time.
    """

    _held: dict[str, tuple[float, PushOptions | ApiError]] = Factory(dict)
    """Until when each is good, on the loop's clock."""
    _asking: WeakValueDictionary[str, asyncio.Lock] = Factory(WeakValueDictionary)

    async def get(
        self, target: str, ask: Callable[[], Awaitable[PushOptions]], *, refresh: bool = False
    ) -> PushOptions:
        """Return the cached options for *target*, or else those that *ask* returns.

        Raises:
            ApiError: The service has no options for *target* or refuses them, now or recently.
        """
        if refresh:
            self._held.pop(target, None)
        async with self._asking.setdefault(target, asyncio.Lock()):
            until, known = self._held.get(target, (0.0, None))
            if known is None or until <= asyncio.get_running_loop().time():
                return await self._asked(target, ask)
            if isinstance(known, ApiError):
                raise fresh_copy(known)
            return known

    async def _asked(self, target: str, ask: Callable[[], Awaitable[PushOptions]]) -> PushOptions:
        try:
            options = await ask()
        except ApiError as error:
            # A key or an account is refused everything, and will be asked for options again.
            of_account = scope_of(error.status) in {Scope.KEY, Scope.ACCOUNT}
            if row(error.status).read is Meaning.REFUSED and not of_account:
                self._keep(target, fresh_copy(error), REFUSAL_TTL)
            raise
        self._keep(target, options, OPTIONS_TTL)
        return options

    def _keep(self, target: str, known: PushOptions | ApiError, seconds: float) -> None:
        self._held.pop(target, None)
        while len(self._held) >= MOST_OPTIONS:
            del self._held[next(iter(self._held))]
        self._held[target] = (asyncio.get_running_loop().time() + seconds, known)


@define(eq=False)
class DataStatus:
    """The last known data status of a company, which all tasks that wait for it share."""

    _value: dict[str, Any] = field(factory=dict, init=False)
    _asked_at: float = field(default=-math.inf, init=False)
    _asking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def newer(self, than: float, ask: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """Return the status, asking for it unless that has been done since *than*."""
        async with self._asking:
            if self._asked_at < than:
                now = asyncio.get_running_loop().time()
                self._value, self._asked_at = await ask(), now
            return self._value


@frozen
class RequestContext:
    """Sends requests with the settings of one client.

    Attributes:
        dialect: The version of the service.
        session: Shared by all clients that ``with_options`` derived.
        settings: Timeout, retries, priority and headers of each call.
        numbers: How fractions are read, unless ``list(numbers=)`` says otherwise.
        cache: Push options, for some minutes.
        data_statuses: Of companies whose data are waited for.
        warned: Kinds of warnings that have been logged.
    """

    dialect: Dialect
    session: Session
    settings: CallOptions
    numbers: Literal["float", "decimal"] = "float"
    cache: OptionsCache = Factory(OptionsCache)
    data_statuses: WeakValueDictionary[str, DataStatus] = Factory(WeakValueDictionary)
    warned: set[tuple[str, str, str]] = Factory(set)

    @property
    def exact(self) -> bool:
        """Whether fractions are read as Decimal."""
        return self.numbers == "decimal"

    def to_route(self, operation: str, **names: str) -> Request:
        """Return a request for one of the dialect's operations, without body."""
        return requests.to_route(self.dialect, operation, **names)

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
        body = responses.read_json(request, await self.send(request), exact=self.exact)
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
            request, response, read_any, response.body, exact=self.exact
        )
        return operation

    async def options(self, request: Request, *, refresh: bool = False) -> PushOptions:
        """Return push options, from the cache if they are there."""

        async def ask() -> PushOptions:
            response = await self.send(request)
            value = responses.read_json(request, response)
            return PushOptions.of(
                responses.placed(request, response, structure, value, PropertyDescription)
            )

        return await self.cache.get(request.target, ask, refresh=refresh)

    def warn(self, place: str, problem: Problem) -> None:
        """Log a warning about records pushed to *place*, each kind once."""
        kind = (place, problem.code, re.sub(r"\d+", "", problem.path))
        if kind not in self.warned and len(self.warned) < MOST_WARNINGS:
            self.warned.add(kind)
            logger.warning("%s: %s", place, problem)
