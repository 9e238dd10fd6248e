"""A sandbox answers only while its loop runs, and says so where another one runs instead."""

from __future__ import annotations

import asyncio
from threading import Thread

import pytest

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox


async def _address(sandbox: Sandbox) -> str:
    return sandbox.base_url


async def _count(sandbox: Sandbox) -> int | None:
    async with Client(sandbox.api_key, sandbox.base_url) as client:
        return (await client.companies.list()).total_results


def test_a_sandbox_whose_loop_waits_for_this_one_says_so() -> None:
    """Its callers would wait for their time-out, and read that the answer was lost."""
    sandbox = Sandbox(companies=1, invoices=1)
    with asyncio.Runner() as its_own:
        its_own.run(sandbox.start())
        assert sandbox.base_url.startswith("http://127.0.0.1:")
        with (
            asyncio.Runner() as another,
            pytest.raises(RuntimeError, match="on another event loop, which stands still"),
        ):
            another.run(_address(sandbox))
        assert its_own.run(_count(sandbox)) == 1
        its_own.run(sandbox.stop())


def test_a_sandbox_in_a_thread_of_its_own_answers_any_loop() -> None:
    """A loop that runs elsewhere stands in nobody's way."""
    sandbox, its_own = Sandbox(companies=1, invoices=1), asyncio.new_event_loop()
    thread = Thread(target=its_own.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(sandbox.start(), its_own).result()
        assert asyncio.run(_count(sandbox)) == 1
        asyncio.run_coroutine_threadsafe(sandbox.stop(), its_own).result()
    finally:
        its_own.call_soon_threadsafe(its_own.stop)
        thread.join()
        its_own.close()
