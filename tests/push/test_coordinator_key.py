"""Promises of a coordinator whose API key the service does not accept any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration_sdk._outcome import PushOutcome
from integration_sdk.errors import Unauthorized
from integration_sdk.models import OutcomeStatus
from tests.support.push_support import collect, coordinator, numbers, requests
from tests.support.virtual_service import Answer, Asked, Service, refusal

pytestmark = pytest.mark.virtual_time


def refusing(refuses: Callable[[Service], bool]) -> Service:
    """Return a service that answers 401 to the pushes that *refuses* tells."""

    def answer(call: Asked) -> Answer | None:
        return refusal(401) if call.kind == "push" and refuses(service) else None

    service = Service(answer=answer)
    return service


@pytest.mark.parametrize("at_once", [1, 8])
async def test_a_key_that_is_revoked_stops_the_run_with_one_error(at_once: int) -> None:
    """After three refusals in a row the rest of the input is untouched, as with a 402."""
    service = refusing(lambda service: service.count("push") > 20)
    outcomes: list[PushOutcome] = []
    async with coordinator(service, max_open=at_once) as pushes:
        with pytest.raises(Unauthorized):
            await collect(pushes.run(requests(1000)), into=outcomes)
        with pytest.raises(Unauthorized):
            await pushes.submit(requests(1)[0])

    assert service.count("push") <= 20 + 3 * at_once + 1
    refused = [one for one in outcomes if one.status is OutcomeStatus.REJECTED]
    assert len(refused) <= 3 * at_once + at_once
    assert sorted(numbers(outcomes)) == list(range(len(outcomes)))


async def test_a_key_that_is_renewed_does_not_stop_the_run() -> None:
    """All that was under way with the old key is refused together; that counts as once."""
    service = refusing(lambda service: 64 < service.count("push") <= 72)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(500)))

    accepted = [one for one in outcomes if one.status is OutcomeStatus.SUCCESS]
    assert (len(outcomes), len(accepted)) == (500, 500 - 8)


async def test_refusals_with_accepted_pushes_between_do_not_stop_the_run() -> None:
    """Only refusals in a row say that the key is gone."""
    service = refusing(lambda service: service.count("push") % 3 > 0)
    async with coordinator(service, max_open=1) as pushes:
        outcomes = await collect(pushes.run(requests(30)))

    assert len([one for one in outcomes if one.status is OutcomeStatus.SUCCESS]) == 10
