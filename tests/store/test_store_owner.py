"""A store belongs to one service: what it holds means nothing to another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client, Dialect, OutcomeStatus, PushOutcome, PushRequest, Store
from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import invoice, posts, pushed, run, to, written
from tests.support.postgres import Server
from tests.support.sandbox_support import DELIVERY


@pytest.fixture
async def ours() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=0, push_seconds=(0.0, 0.0)) as running:
        yield running


@pytest.fixture
async def theirs() -> AsyncIterator[Sandbox]:
    """Another service with the same companies, where ids and references fit by chance."""
    async with Sandbox(companies=1, invoices=0, push_seconds=(0.0, 0.0)) as running:
        yield running


@pytest.fixture(params=["file", "database"])
async def where(request: pytest.FixtureRequest, tmp_path: Path, postgres: Server) -> str:
    return str(tmp_path / "state.db") if request.param == "file" else await postgres.new_database()


def to_first(sandbox: Sandbox, connection: int = 0) -> PushRequest:
    books = sandbox.companies[0].connections[connection]
    return PushRequest(books.company_id, books.id, "invoices", DELIVERY, reference="INV-17")


async def push(client: Client, journal: Any, request: PushRequest, **options: Any) -> PushOutcome:
    async with client.coordinator(journal=journal, **options) as pushes:
        return await (await pushes.submit(request))


async def test_a_push_of_one_service_is_no_success_of_another(
    ours: Sandbox, theirs: Sandbox, where: str
) -> None:
    """The other client is told of both and sends nothing; then the first goes on as before."""
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(theirs.api_key, theirs.base_url) as other,
    ):
        before = await push(first, where, to_first(ours))
        with pytest.raises(ConfigurationError) as refused:
            await push(other, where, to_first(theirs))
        again = await push(first, where, to_first(ours))

    for part in (
        ours.base_url,
        theirs.base_url,
        "dialect document",
        "Use a store or scope of its own",
    ):
        assert part in str(refused.value)
    assert not theirs.requests
    assert (before.key, before.status) == (again.key, OutcomeStatus.SUCCESS)
    assert posts(ours) == 1


async def test_an_open_push_is_adopted_by_no_other_service(
    ours: Sandbox, theirs: Sandbox, where: str
) -> None:
    """Its ids may fit there by chance. It stays whose it was."""
    offline = next(at for at, one in enumerate(ours.companies[0].connections) if not one.online)
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(theirs.api_key, theirs.base_url) as other,
    ):
        async with first.coordinator(journal=where, leave="detach") as pushes:
            left = await pushes.submit(to_first(ours, offline))
        with pytest.raises(ConfigurationError, match="belongs to http"):
            await push(other, where, to_first(theirs, offline))
        async with first.coordinator(journal=where, leave="detach") as pushes:
            assert [one.key for one in pushes.recovered] == [left.key]

    assert not theirs.requests


async def test_a_store_in_use_refuses_the_next_client_of_another_service(
    ours: Sandbox, theirs: Sandbox, where: str
) -> None:
    """Also the very object that the right client has used, and will use again."""
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(theirs.api_key, theirs.base_url) as other,
        Store(where) as store,
    ):
        for _ in range(2):
            assert (await push(first, store, to_first(ours))).status is OutcomeStatus.SUCCESS
            with pytest.raises(ConfigurationError, match="belongs to http"):
                await push(other, store, to_first(theirs))

    assert not theirs.requests


async def test_another_dialect_is_another_service(ours: Sandbox, where: str) -> None:
    """Its names for the same things differ, so that what is on record would be misread."""
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(ours.api_key, ours.base_url, dialect=Dialect.published()) as other,
    ):
        await push(first, where, to_first(ours))
        with pytest.raises(ConfigurationError, match=r"dialect document.*dialect published"):
            await push(other, where, to_first(ours))

    assert posts(ours) == 1


async def test_any_client_of_the_service_may_use_its_store(ours: Sandbox, where: str) -> None:
    """Whatever its key and settings, and however it writes the address."""
    clients = (
        Client(ours.api_key, ours.base_url),
        Client(lambda: ours.api_key, ours.base_url + "/", timeout=5.0),
        Client(ours.api_key, ours.base_url.replace("http:", "HTTP:")).with_options(retry=None),
    )
    async with AsyncExitStack() as stack:
        keys = set()
        for one in clients:
            stack.push_async_callback(one.aclose)
            keys.add((await push(one, where, to_first(ours))).key)

    assert len(keys) == posts(ours) == 1


async def test_who_is_refused_does_not_wait_for_who_is_at_work(
    ours: Sandbox, theirs: Sandbox, postgres: Server
) -> None:
    """It would wait for a lease that it can do nothing with."""
    where = await postgres.new_database()
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(theirs.api_key, theirs.base_url) as other,
        Store(where, wait_for_database=600.0) as store,
        first.coordinator(journal=where),
        asyncio.timeout(60),
    ):
        with pytest.raises(ConfigurationError, match="belongs to http"):
            await push(other, store, to_first(theirs))


async def test_of_two_services_that_meet_at_a_new_store_one_has_it(
    ours: Sandbox, theirs: Sandbox, postgres: Server
) -> None:
    """Both are first; whoever comes second in the database is refused, for good."""
    where = await postgres.new_database()
    async with (
        Client(ours.api_key, ours.base_url) as one,
        Client(theirs.api_key, theirs.base_url) as two,
    ):
        for _ in range(2):
            ends = await asyncio.gather(
                push(one, where, to_first(ours)),
                push(two, where, to_first(theirs)),
                return_exceptions=True,
            )
            refused = [end for end in ends if isinstance(end, ConfigurationError)]
            assert len(refused) == 1, ends

    assert sorted((posts(ours), posts(theirs))) == [0, 1]


async def test_each_scope_belongs_to_a_service(ours: Sandbox, theirs: Sandbox, where: str) -> None:
    """So that one file or database serves several; what is in one is not in the others."""
    async with (
        Client(ours.api_key, ours.base_url) as first,
        Client(theirs.api_key, theirs.base_url) as other,
        Store(where, "books") as books,
        Store(where, scope="tills") as tills,
    ):
        before = await push(first, books, to_first(ours))
        await books.aclose()
        assert (await push(other, tills, to_first(theirs))).status is OutcomeStatus.SUCCESS
        with pytest.raises(ConfigurationError, match=r"scope 'tills' of .* belongs to"):
            await push(first, tills, to_first(ours))
        await tills.aclose()
        assert (await push(first, books, to_first(ours))).key == before.key

    assert repr(Store("state.db", scope="books")) == "Store('state.db', scope='books')"
    assert posts(ours) == posts(theirs) == 1


@pytest.mark.parametrize("scope", ["", " ", "two\nlines", None, 5])
def test_a_scope_has_a_name(scope: Any) -> None:
    with pytest.raises(ConfigurationError, match="scope must be"):
        Store("state.db", scope=scope)


# The command


async def test_the_command_pushes_nothing_to_another_service(
    ours: Sandbox, theirs: Sandbox, tmp_path: Path
) -> None:
    """It ends with the sentence and code 2; looking at the journal needs no service."""
    journal, source = tmp_path / "pushes.db", written(tmp_path / "r", [invoice(1)])
    await pushed(
        ours, ours.companies[0].connections[0], source, journal=journal, reference="invoiceNumber"
    )
    books = theirs.companies[0].connections[0]
    command = ["push", str(source), *to(books), "--reference", "invoiceNumber"]

    done = await run(*command, "--journal", str(journal), sandbox=theirs)
    resumed = await run("pushes", "resume", "--journal", str(journal), sandbox=theirs)
    listed = await run("pushes", "list", "--journal", str(journal))

    assert (done.code, resumed.code, listed.code) == (2, 2, 0)
    for one in (done, resumed):
        assert ours.base_url in one.stderr
        assert theirs.base_url in one.stderr
    assert posts(theirs) == 0
    assert "FINAL Success" in listed.stdout
