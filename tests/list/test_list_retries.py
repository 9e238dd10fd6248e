"""A list goes on through a bad hour of the service, for as long as each page's timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from integration_sdk import Client, RetryPolicy
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    InternalServerError,
    NotSent,
    ServiceUnavailable,
)
from integration_sdk.sandbox import Sandbox
from tests.support.session_support import unused_port
from tests.support.virtual_service import Answer, Asked, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=500) as running:
        yield running


def client_of(sandbox: Sandbox, **settings: Any) -> Client:
    return Client(sandbox.api_key, sandbox.base_url, **settings)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("prefetch", [0, 4])
async def test_a_page_is_asked_for_until_its_timeout(
    sandbox: Sandbox, status: int, prefetch: int
) -> None:
    """Ten answers in a row that ask to come later end no list, wherever they come."""
    async with client_of(sandbox, timeout=3600) as client:
        sandbox.faults.status(status, skip=2, times=10)
        companies = await client.companies.list(page_size=50, prefetch=prefetch).collect()

    assert len(companies) == 500


async def test_a_page_that_never_comes_is_an_error_in_time(sandbox: Sandbox) -> None:
    """The error comes within the timeout, and says how many attempts there were."""
    async with client_of(sandbox, timeout=30) as client:
        sandbox.faults.status(500, skip=1)
        companies = client.companies.list(page_size=100, prefetch=0)
        began = now()
        with pytest.raises(InternalServerError) as caught:
            await companies.collect()

    assert now() - began <= 30
    assert caught.value.attempts == companies.report.requests - 1 > 5
    assert f"the last of {caught.value.attempts} attempts" in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"timeout": 30, "retry": None}, {"timeout": None}], ids=["no retry", "no timeout"]
)
async def test_a_list_without_a_timeout_or_retries_has_its_attempts(
    sandbox: Sandbox, settings: dict[str, Any]
) -> None:
    """Without retries there are none; without a timeout, attempts are the only bound."""
    async with client_of(sandbox, **settings) as client:
        sandbox.faults.status(503)
        with pytest.raises(ServiceUnavailable) as caught:
            await client.companies.list(prefetch=0).collect()

    assert caught.value.attempts == (1 if "retry" in settings else 3)


async def test_one_page_has_the_attempts_of_any_call(sandbox: Sandbox) -> None:
    """Whoever awaits a page, and may hold up a web request, is told after three attempts."""
    async with client_of(sandbox) as client:
        sandbox.faults.status(500)
        with pytest.raises(InternalServerError, match="the last of 3 attempts"):
            await client.companies.list()
        with pytest.raises(InternalServerError, match="the last of 3 attempts"):
            await client.companies.list().first()


async def test_a_service_that_is_not_there_is_told_at_once() -> None:
    """A wrong address is no bad hour."""
    async with Client("key", f"http://127.0.0.1:{unused_port()}", timeout=3600) as client:
        began = now()
        with pytest.raises(NotSent):
            await client.companies.list().collect()

    assert now() - began < 5


@pytest.mark.parametrize("prefetch", [0, 4])
async def test_a_timeout_is_for_a_page(sandbox: Sandbox, prefetch: int) -> None:
    """``timeout=4`` lasts four seconds, whenever the page was sent."""
    async with client_of(sandbox, timeout=4) as client:
        sandbox.faults.latency(60, skip=1)
        companies = aiter(client.companies.list(page_size=100, prefetch=prefetch))
        for _ in range(100):
            await anext(companies)
        began = now()
        with pytest.raises(AnswerLost, match="4 s"):
            await anext(companies)
        await companies.aclose()

    assert now() - began <= 4.1


def answered(answer: Answer, asked: Asked, proceed: Proceed) -> Answer:
    return answer


@pytest.mark.parametrize(("retry", "few"), [(RetryPolicy(), 3), (None, 1)])
async def test_who_asks_to_wait_is_waited_for(retry: RetryPolicy | None, few: int) -> None:
    """Beyond its attempts a page is repeated after 429, 500 and 503, for as long as it may take."""
    sent: dict[int, int] = {}
    for status in range(400, 600):
        service = Service(faults=[partial(answered, refusal(status))])
        async with service.client(retry=retry) as client:
            with pytest.raises(ApiError):
                await client.companies.list().collect()
        sent[status] = len(service.log)

    beyond = {status for status, times in sent.items() if times > few}
    assert beyond == ({429, 500, 503} if retry else set())
    assert {status for status, times in sent.items() if times == few} >= {502, 504}
    assert sent[404] == 1
