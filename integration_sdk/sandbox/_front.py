"""What a call passes on its way to an endpoint.

From the outside in: the faults in front, the key check, the account's limits, kept idempotent
answers, the faults within.

Source: "Limits"; "Account limit errors (402)". Assumed: the daily quota and idempotency keys are
the published ones; the document's dialect ignores the latter.
"""

from __future__ import annotations

from functools import partial
from math import inf

from attrs import evolve

from integration_sdk.sandbox import _endpoints  # noqa: F401 - found by their addresses
from integration_sdk.sandbox._call import Answer, Call, Problem, Refused, Respond, rate_headers
from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._routes import find
from integration_sdk.sandbox._service import DAY, FREE_DAYS, Service

KEPT_SECONDS = 90 * 60


def check_key(service: Service, call: Call) -> None:
    scheme, _, credential = call.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic" or credential.strip() != service.credential:
        problem = Problem("Authorization", "The API key is incorrect", "Authentication")
        raise Refused(401, problems=[problem], headers={"WWW-Authenticate": "Basic"})


class Front:
    """Answers calls to *service*; a refusal has the documented error body."""

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults, self._replays = service, faults, Replays()
        self._day, self._used = -1, 0

    async def respond(self, call: Call) -> Answer:
        return await self._faults.through(call, self._counted, in_front=True)

    async def _counted(self, call: Call) -> Answer:
        check_key(self._service, call)
        limits = self._count(call.now)
        try:
            found = await self._admitted(call)
        except Refused as refused:
            found = self._service.refuse(refused)
        return evolve(found, headers={**limits, **found.headers}) if limits else found

    def _count(self, now: float) -> dict[str, str]:
        """Count one request and return the rate-limit headers; 429 if the quota is used up."""
        settings = self._service.settings
        if settings.quota is None:
            return {}
        if self._day != now // DAY:
            self._day, self._used = int(now // DAY), 0
        self._used += 1
        reset = (self._day + 1) * DAY
        headers = rate_headers(settings.quota, settings.quota - self._used, reset)
        # A quota that was not asked for is counted and told, and refuses nothing.
        if settings.daily_quota is not None and self._used > settings.quota:
            headers["Retry-After"] = str(int(reset - now) + 1)
            raise Refused(429, "Too many requests: the daily quota is spent", headers=headers)
        return headers

    async def _admitted(self, call: Call) -> Answer:
        settings = self._service.settings
        if call.now > self._service.expires:
            message = f"Account expired: the free account is older than {FREE_DAYS} days"
            raise Refused(402, problems=[Problem(None, message)])
        within = partial(self._faults.through, respond=self._called, in_front=False)
        if settings.is_published:
            return await self._replays.through(call, within)
        return await within(call)

    async def _called(self, call: Call) -> Answer:
        self._service.ledger.settle(call.now)
        endpoint, call.names = find(self._service.settings.dialect, call.method, call.segments)
        return endpoint(self._service, call)


class Replays(dict[str, "tuple[tuple[object, ...], float, Answer | None]"]):
    """Answers to POSTs, kept under their ``Idempotency-Key`` for 90 minutes and repeated.

    A 5xx is kept; a 429 is not, nor are answers of faults in front of the service. The same key
    with another query or body is 422; with a request in progress it is 409.
    """

    async def through(self, call: Call, respond: Respond) -> Answer:
        """Return the kept answer to *call*, or that of *respond*, which is then kept."""
        key = call.headers.get("Idempotency-Key")
        if call.method != "POST" or not key:
            return await respond(call)
        request = call.path, tuple(call.params), call.body
        known, at, kept = self.get(key, (None, -inf, None))
        if call.now - at <= KEPT_SECONDS:
            if known != request:
                raise Refused(422, "The Idempotency-Key was used for another request")
            if kept is None:
                raise Refused(409, "Conflict: a request with this Idempotency-Key is at work")
            return evolve(kept, dropped=False, cut_at=None)
        began = self[key] = request, call.now, None
        try:
            found = await respond(call)
        except BaseException:
            del self[key]
            raise
        if self.get(key) == began:
            self[key] = request, began[1], found
            if found.status == 429:
                del self[key]
        return found
