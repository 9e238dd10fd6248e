"""What a call passes on its way to an endpoint.

From the outside in: the faults in front, the key check, the account's limits, kept idempotent
answers, the faults within.
"""

from __future__ import annotations

from functools import partial

from attrs import evolve

from integration_sdk.sandbox._account import DAY, FREE_DAYS, Quota, Replays, account_expired
from integration_sdk.sandbox._call import Answer, Call, Problem, Refused
from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._routes import find
from integration_sdk.sandbox._service import Service


class Front:
    """Answers calls to *service*; a refusal has the documented error body."""

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults = service, faults
        settings = self._settings = service.settings
        self._quota = Quota(settings.daily_quota, settings.quota_holds)
        self._replays = Replays()
        left = (FREE_DAYS - settings.account_age_days) * DAY
        self._expires = service.clock.now() + left

    async def respond(self, call: Call) -> Answer:
        """Answer *call*."""
        return await self._faults.through(call, self._counted, in_front=True)

    async def _counted(self, call: Call) -> Answer:
        if not self._service.has_key(call):
            problem = Problem("Authorization", "The API key is incorrect", "Authentication")
            raise Refused(401, problems=[problem], headers={"WWW-Authenticate": "Basic"})
        told = self._quota.count(call.now)
        try:
            answer = await self._admitted(call)
        except Refused as refused:
            answer = self._service.refuse(refused)
        return evolve(answer, headers={**told, **answer.headers}) if told else answer

    async def _admitted(self, call: Call) -> Answer:
        if self._settings.free_plan and call.now > self._expires:
            raise account_expired()
        within = partial(self._faults.through, respond=self._called, in_front=False)
        if self._settings.published:
            return await self._replays.through(call, within)
        return await within(call)

    async def _called(self, call: Call) -> Answer:
        self._service.ledger.settle(call.now)
        endpoint, call.names = find(self._settings.dialect, call.method, call.segments)
        return await endpoint(self._service, call)
