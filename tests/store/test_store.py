"""`Store` under coordinators: whose it is, and one after another."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client, Dialect, OutcomeStatus, PushRequest, RetryPolicy, Store
from integration_sdk.errors import ConfigurationError, JournalError, JournalInUse
from tests.support.postgres import Server
from tests.support.push_support import coordinator, push_once
from tests.support.virtual_service import Service

NAMED = PushRequest("c", "d", "invoices", {"n": 1}, reference="INV-1")


def at_once() -> Service:
    return Service(lambda _: -1.0, latency=0.0)


async def test_coordinators_take_turns_with_one_store(tmp_path: Path) -> None:
    """It opens at the first use, stays open between two blocks, and knows what was pushed."""
    where = tmp_path / "state.db"
    async with Store(where) as store:
        assert not where.exists()
        async with coordinator(at_once(), journal=store) as pushes:
            first = await (await pushes.submit(NAMED))
            for _ in range(2):
                with pytest.raises(JournalInUse, match="another coordinator"):
                    await coordinator(at_once(), journal=store).__aenter__()
        with pytest.raises(JournalInUse, match="Several can share one in PostgreSQL"):
            await coordinator(at_once(), journal=str(where)).__aenter__()
        service = at_once()
        second = await push_once(service, NAMED, journal=store)

    assert (first.key, first.status) == (second.key, OutcomeStatus.SUCCESS)
    assert not service.count("push")


@pytest.mark.parametrize("where", ["", ".", "/", 5, None, b"state.db", "mysql://host/db"])
def test_what_is_no_path_is_refused(where: Any) -> None:
    """At once, not at the first push."""
    with pytest.raises(ConfigurationError, match="a Store takes the path of a file"):
        Store(where)


@pytest.mark.parametrize("wrong", [{"patience": -1}, {"lease": 1}, {"scope": " "}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    """With what they must be."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Store("state.db", **wrong)


def test_store_is_used_in_one_loop_at_a_time(tmp_path: Path) -> None:
    """A use in another one meanwhile is refused at once."""
    store = Store(tmp_path / "state.db")
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        runner.run(push_once(at_once(), NAMED, journal=store))
        other = thread.submit(asyncio.run, push_once(at_once(), NAMED, journal=store))
        with pytest.raises(JournalError, match="event loop that still runs"):
            other.result(timeout=30)
        runner.run(store.aclose())


@pytest.mark.parametrize("kind", ["file", "database"])
def test_store_at_module_level_works_in_one_loop_after_another(
    kind: str, tmp_path: Path, postgres: Server
) -> None:
    """As a client does, also where it is not closed before its loop ends."""
    place = str(tmp_path / "s.db") if kind == "file" else asyncio.run(postgres.new_database())
    store = Store(place)

    async def push(*, close: bool) -> str | None:
        key = (await push_once(at_once(), NAMED, journal=store)).key
        if close or kind == "database":  # its sockets are looked at
            await store.aclose()
        return key

    assert len({asyncio.run(push(close=close)) for close in (False, False, True, True)}) == 1


def test_a_coordinator_works_in_one_loop_after_another() -> None:
    """Also where some wait until others have ended."""
    client = Client("key", "http://127.0.0.1:9", retry=RetryPolicy(attempts=1))
    pushes = client.coordinator(max_open=1)

    async def push() -> list[OutcomeStatus]:
        async with pushes:
            return [one.status async for one in pushes.run([NAMED, NAMED, NAMED])]

    assert [asyncio.run(push()) for _ in range(2)] == [[OutcomeStatus.REJECTED] * 3] * 2


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_store_of_one_service_refuses_another(
    kind: str, tmp_path: Path, postgres: Server
) -> None:
    """In another dialect: ids and references mean nothing there. Another scope serves it."""
    place = str(tmp_path / "s.db") if kind == "file" else await postgres.new_database()
    ours, theirs = at_once(), at_once()
    await push_once(ours, NAMED, journal=place)
    other = Dialect.published()
    with pytest.raises(ConfigurationError, match=r"belongs to http.* Nothing was read or sent"):
        await push_once(theirs, NAMED, journal=place, dialect=other)
    assert not theirs.count("push")

    async with Store(place, "theirs") as store:
        await push_once(theirs, NAMED, journal=store, dialect=other)
    await push_once(ours, NAMED, journal=place)
    assert (ours.count("push"), theirs.count("push")) == (1, 1)
