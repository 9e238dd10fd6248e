"""Promises of a coordinator that sends creates again under their idempotency keys."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk.dialect import Dialect
from integration_sdk.errors import AnswerLost, ConfigurationError
from integration_sdk.models import OutcomeStatus, PushOutcome
from tests.push_model import Model
from tests.push_support import collect, coordinator, numbers, requests

pytestmark = pytest.mark.virtual_time

PUBLISHED = Dialect.published()
MAINTENANCE = Response(status=503, headers={"Retry-After": "120"}, body=b"<html>Back soon</html>")


class Maintenance(Model):
    """A service behind a proxy that puts off record 0 once, and loses record 1 every time."""

    puts_off = True

    def _answer(self, request: Request) -> Response | BaseException:
        if request.operation == "push.create":
            if b'"number":1' in (request.body or b""):
                return AnswerLost("lost")
            if self.puts_off:
                self.puts_off = False
                return MAINTENANCE
        return super()._answer(request)


async def test_what_will_be_sent_again_is_not_given_up_meanwhile() -> None:
    """The search for another push of its company ends before the pause that was asked for."""
    model = Maintenance()
    async with coordinator(model, dialect=PUBLISHED) as pushes:
        outcomes = await collect(pushes.run(requests(2)))

    assert numbers(outcomes) == [1, 0]
    assert [one.status for one in outcomes] == [OutcomeStatus.IN_DOUBT, OutcomeStatus.SUCCESS]
    assert len(model.by_key) == 1


async def test_a_service_of_another_dialect_ends_the_run() -> None:
    """Idempotency keys that it does not know make no push twice: the error names the dialect."""

    def lose_some(call: Request) -> BaseException | None:
        if call.operation != "push.create":
            return None
        number = json.loads(call.body or b"{}")["number"]
        if number % 3 == 0:
            model.add("company-0", "connection-0", "invoices", {"number": number})
            return AnswerLost("reset")
        return None

    model = Model(lambda _: 0.0, answer=lose_some, connection_name="dataConnectionId")
    outcomes: list[PushOutcome] = []
    async with coordinator(model, dialect=Dialect.published()) as pushes:
        with pytest.raises(ConfigurationError, match=r"Dialect\.document"):
            await collect(pushes.run(requests(60)), into=outcomes)

    made = Counter(held.record["number"] for held in model.by_key.values())
    assert set(made.values()) == {1}
    assert {one.status for one in outcomes} <= {
        OutcomeStatus.SUCCESS,
        OutcomeStatus.PENDING,
        OutcomeStatus.IN_DOUBT,
    }
