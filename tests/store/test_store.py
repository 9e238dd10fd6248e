"""`Store`: where the pushes of coordinators are kept, and how long."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.virtual_service import Service
from integration_sdk import Client, OutcomeStatus, PushRequest, Store
from integration_sdk.errors import ConfigurationError, JournalError, JournalInUse
from tests.support.push_support import coordinator


def exists(where: Any) -> bool:
    return Path(where).exists()


NAMED = PushRequest("c", "d", "invoices", {"n": 1}, reference="INV-1")


@pytest.fixture(params=[str, Path])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path / "state.db")


async def test_coordinators_take_turns_with_one_store(where: Any) -> None:
    """It opens at the first use, stays open between two blocks, and knows what was pushed."""
    async with Store(where) as store:
        assert not exists(where)
        async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store) as pushes:
            first = await (await pushes.submit(NAMED))
        service = Service(lambda _: -1.0, latency=0.0)
        async with coordinator(service, journal=store) as pushes:
            second = await (await pushes.submit(NAMED))

    assert (first.key, first.status) == (second.key, OutcomeStatus.SUCCESS)
    assert not service.count("push")


async def test_one_coordinator_at_a_time_pushes_with_a_store(where: Any) -> None:
    """Two of them would not see what the other one is sending."""
    store = Store(where)
    async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store) as pushes:
        with pytest.raises(JournalInUse, match="another coordinator"):
            await coordinator(Service(lambda _: -1.0, latency=0.0), journal=store).__aenter__()
        await (await pushes.submit(NAMED))
    await store.aclose()


async def test_a_file_has_one_store_at_a_time(where: Any) -> None:
    """Whoever has it open, has it until the store is closed; then the next one goes on."""
    store = Store(where)
    async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store):
        pass
    with pytest.raises(JournalInUse):
        await coordinator(Service(lambda _: -1.0, latency=0.0), journal=where).__aenter__()
    await store.aclose()
    async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=where) as pushes:
        assert await pushes.find("INV-1") is None


async def test_a_closed_store_opens_again_at_its_next_use(where: Any) -> None:
    """Closing ends what is open, not the store."""
    store = Store(where)
    for _ in range(2):
        async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store) as pushes:
            await (await pushes.submit(NAMED))
        await store.aclose()
        await store.aclose()


@pytest.mark.parametrize("where", ["", ".", "/", 5, b"state.db", "mysql://host/db"])
def test_what_is_no_path_is_refused(where: Any) -> None:
    """At once, not at the first push."""
    with pytest.raises(ConfigurationError, match="a Store takes the path of a file"):
        Store(where)


@pytest.mark.parametrize(
    "where", ["postgresql+asyncpg://me:secret@host/db", "mysql://:secret@host"]
)
def test_no_password_is_shown(where: str) -> None:
    """Nor that of a URL of another library."""
    with pytest.raises(ConfigurationError) as store:
        Store(where)
    with pytest.raises(ConfigurationError) as journal:
        Client("key", "http://127.0.0.1").coordinator(journal=where)
    assert "secret" not in f"{store.value} {journal.value}"


async def test_the_last_block_closes_the_store(where: Any) -> None:
    """Tasks that share a store have a block each, and end it when they like."""
    store, service = Store(where), Service(lambda _: -1.0, latency=0.0)
    async with store:
        async with store, coordinator(service, journal=store) as pushes:
            async with store:
                pass
            push = await pushes.submit(NAMED)
        with pytest.raises(JournalInUse):  # it is open still
            await Store(where).lend()
    assert (await push).status is OutcomeStatus.SUCCESS
    async with Store(where) as another:
        assert len(await another.recorded()) == 1


def test_a_store_is_used_in_one_loop_at_a_time(where: Any) -> None:
    """Whoever uses it in another one meanwhile hears so at once."""
    store = Store(where)

    async def push() -> str | None:
        async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store) as pushes:
            return (await (await pushes.submit(NAMED))).key

    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        runner.run(push())
        other = thread.submit(asyncio.run, push())
        with pytest.raises(JournalError, match="event loop that still runs"):
            other.result(timeout=30)
        runner.run(store.aclose())


def test_a_store_at_module_level_works_in_one_loop_after_another(where: Any) -> None:
    """As a client does, also where nobody closes it before its loop ends."""
    store = Store(where)

    async def push(*, close: bool) -> str | None:
        async with coordinator(Service(lambda _: -1.0, latency=0.0), journal=store) as pushes:
            key = (await (await pushes.submit(NAMED))).key
        if close:
            await store.aclose()
        return key

    assert len({asyncio.run(push(close=close)) for close in (False, False, True, True)}) == 1


def test_a_store_says_where_it_is(where: Any) -> None:
    assert repr(Store(where)) == f"Store('{where}')"
