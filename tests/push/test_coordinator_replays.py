"""Promises of a coordinator that sends creates again under their idempotency keys."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from integration_sdk.dialect import Dialect
from integration_sdk.models import OutcomeStatus
from tests.support.push_support import collect, coordinator, requests
from tests.support.virtual_service import Answer, Asked, Service, no_answer

pytestmark = pytest.mark.virtual_time

PUBLISHED = Dialect.published()
MAINTENANCE = Answer(status=503, headers={"Retry-After": "120"}, body=b"<html>Back soon</html>")


def maintained() -> Service:
    """Return a service behind a proxy that puts off record 0 once, and loses record 1 each time."""
    put_off = iter([MAINTENANCE])

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        return no_answer() if b'"number":1' in call.body else next(put_off, None)

    return Service(answer=answer)


async def test_what_will_be_sent_again_is_not_given_up_meanwhile() -> None:
    """The search for another push of its company ends before the pause that was asked for."""
    service = maintained()
    async with coordinator(service, dialect=PUBLISHED) as pushes:
        outcomes = await collect(pushes.run(requests(2)))

    statuses = {one.request.record["number"]: one.status for one in outcomes}
    assert statuses == {0: OutcomeStatus.SUCCESS, 1: OutcomeStatus.IN_DOUBT}
    assert len(service.by_key) == 1


async def test_a_service_of_another_dialect_gets_no_replays() -> None:
    """Idempotency keys that it does not know make no push twice."""

    def lose_some(call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        number = json.loads(call.body)["number"]
        if number % 3 == 0:
            service.add(record={"number": number})
            return no_answer()
        return None

    service = Service(lambda _: 0.0, answer=lose_some)
    async with service.client(dialect=PUBLISHED) as client, client.coordinator() as pushes:
        outcomes = await collect(pushes.run(requests(60)))

    made = Counter(held.record["number"] for held in service.by_key.values())
    assert set(made.values()) == {1}
    assert {one.status for one in outcomes} <= {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}
