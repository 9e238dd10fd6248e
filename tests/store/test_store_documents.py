"""Documents of pulls, in each of the three stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration_sdk import Store
from integration_sdk._store.row import Fenced, Stale
from integration_sdk._store.rows import Document, Documents
from tests.support.postgres import Server


@pytest.fixture(params=["memory", "file", "database"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: Server
) -> AsyncIterator[Store]:
    where = {
        "memory": None,
        "file": tmp_path / "state.db",
        "database": await postgres.new_database(),
    }
    async with Store(where[request.param]) as opened:
        yield opened


@pytest.fixture
async def documents(store: Store) -> Documents:
    return await store.documents(base_url="http://a", dialect="document")


async def claimed(documents: Documents, name: str) -> Document:
    document = await documents.claim(name)
    assert document is not None
    return document


async def test_each_write_is_the_next_version(documents: Documents) -> None:
    """Of two that write the same version, one is told; a claim is not needed."""
    first = await documents.write(Document("receipt"), b"1")
    assert first == Document("receipt", 1, 0, b"1")
    for body in (b"1", b"2"):  # also what another has written in the same words
        with pytest.raises(Stale):
            await documents.write(Document("receipt"), body)

    assert await documents.write(first, b"\0\xff") == Document("receipt", 2, 0, b"\0\xff")
    assert await documents.read("") == [Document("receipt", 2, 0, b"\0\xff")]


async def test_tokens_only_grow_and_an_old_one_writes_nothing(documents: Documents) -> None:
    """Whoever claims it has it, until the claim ends."""
    first = await claimed(documents, "cursor")
    written = await documents.write(first, b"1")
    assert await documents.claim("cursor") is None
    await documents.give_back(["cursor"])
    second = await claimed(documents, "cursor")
    assert second == Document("cursor", 1, second.token, b"1")
    assert second.token > first.token > 0

    with pytest.raises(Fenced):
        await documents.write(written, b"old")
    await documents.write(second, b"new")
    with pytest.raises(Fenced):
        await documents.write(written, b"new")
    with pytest.raises(Stale):
        await documents.write(second, b"again")
    await documents.give_back(["cursor"])

    assert (await claimed(documents, "cursor")).token > second.token


async def test_documents_are_found_by_the_beginning_of_their_names(documents: Documents) -> None:
    """In the order of their names, whatever else is in them."""
    for name in ("b/1", "a/2", "a/%", "a/10", "A/1"):
        await documents.write(Document(name), name.encode())

    assert [one.name for one in await documents.read("a/")] == ["a/%", "a/10", "a/2"]
    assert [one.name for one in await documents.read("")] == ["A/1", "a/%", "a/10", "a/2", "b/1"]


async def test_documents_stay_when_the_store_is_closed(store: Store, documents: Documents) -> None:
    """Those of a file or database, that is; and pushes may be made with the store meanwhile."""
    await store.lend(base_url="http://a", dialect="document")
    await documents.write(await claimed(documents, "cursor"), b"1")
    await store.aclose()

    (found,) = await (await store.documents()).read("cursor")
    assert (found.version, found.body) == (1, b"1")


async def test_a_claim_outlives_the_end_of_another(postgres: Server) -> None:
    """One that is made while the only other one is given back is kept from other processes."""
    url = await postgres.new_database()
    async with Store(url) as one, Store(url) as other:
        ours, theirs = await one.documents(base_url="http://a"), await other.documents()
        for number in range(20):
            await claimed(ours, f"a/{number}")
            await asyncio.gather(ours.give_back([f"a/{number}"]), claimed(ours, f"b/{number}"))

            assert await theirs.claim(f"a/{number}") is not None
            assert await theirs.claim(f"b/{number}") is None
            await ours.give_back([f"b/{number}"])


async def test_a_claim_that_is_cancelled_leaves_nothing_behind(postgres: Server) -> None:
    """Wherever it is, though the process goes on and has something else."""
    url = await postgres.new_database()
    async with Store(url) as one, Store(url) as other:
        ours, theirs = await one.documents(base_url="http://a"), await other.documents()
        await claimed(ours, "else")
        for turns in range(12):
            claiming = asyncio.ensure_future(ours.claim(f"a/{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001 * (turns // 4))
            claiming.cancel()
            await asyncio.wait([claiming])
            if claiming.cancelled():
                assert await theirs.claim(f"a/{turns}") is not None


async def test_what_was_given_back_stays_free(postgres: Server) -> None:
    """Also once the process tries to claim something else, in vain."""
    url = await postgres.new_database()
    async with Store(url) as one, Store(url) as other:
        ours, theirs = await one.documents(base_url="http://a"), await other.documents()
        await claimed(theirs, "b")
        await claimed(ours, "a")
        await ours.give_back(["a"])

        assert await ours.claim("b") is None
        assert await theirs.claim("a") is not None
