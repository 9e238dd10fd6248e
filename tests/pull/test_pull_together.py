"""Several pulls at once, and what one of them leaves to the others when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from integration_sdk import Client, Store
from integration_sdk._pull.audit import audit
from integration_sdk._pull.making import open_sink
from integration_sdk._store.memory import MemoryDocuments
from integration_sdk._store.row import Fenced
from integration_sdk._store.rows import Document
from integration_sdk.errors import ConfigurationError, JournalError
from integration_sdk.sandbox import Sandbox
from tests.proofs.pull_crashes import KeptStore
from tests.support.postgres import Server
from tests.support.pull_support import assert_agrees, assert_holds, now
from tests.support.sandbox_support import until


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=3, invoices=100) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.api_key, sandbox.base_url) as connected:
        yield connected


async def test_two_at_once_with_one_store(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """Neither takes a unit away from the other, and each says what became of all."""
    url = await postgres.new_database()
    async with Store(url) as store:
        pull: dict[str, Any] = {"to": url, "store": store, "part_bytes": 50_000}
        for full in (False, True):
            receipts = await asyncio.gather(
                *(client.pull(["items", "invoices"], **pull, full=full) for _ in range(2))
            )

            assert [receipt.errors for receipt in receipts] == [[], []]
            assert [len(receipt.units) for receipt in receipts] == [6, 6]
            # A second full read replaces what the first began before it.
            assert full or sum(receipt.rows for receipt in receipts) == 3 * (60 + 100)
            await assert_agrees(sandbox, url, "items")
            await assert_agrees(sandbox, url)


@define(eq=False)
class Gate:
    """Where requests wait."""

    reached: asyncio.Event = field(factory=asyncio.Event)
    opened: asyncio.Event = field(factory=asyncio.Event)

    async def stop(self, _call: Any, proceed: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await proceed()


async def test_what_another_gives_back_waits_for_no_unit(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Who has a slot to spare goes on with it, however long its own units take."""
    theirs, ours = Gate(), Gate()
    sandbox.faults.add(theirs.stop, route="GET /data/items", times=1)
    sandbox.faults.add(ours.stop, route="GET /data/suppliers")
    companies = [sandbox.companies[0].id]
    pull: dict[str, Any] = {
        "to": tmp_path,
        "store": KeptStore(MemoryDocuments()),
        "companies": companies,
    }
    other = asyncio.ensure_future(client.pull(["items"], **pull))
    await theirs.reached.wait()
    units = aiter(client.pull(["items", "suppliers"], **pull, at_once=2))
    ending = asyncio.ensure_future(anext(units))
    await ours.reached.wait()
    other.cancel()

    try:
        async with asyncio.timeout(20):
            assert (await ending).data_type == "items"
    finally:
        ours.opened.set()
    assert [unit.data_type async for unit in units] == ["suppliers"]


@define
class FreezingDocuments:
    """Documents of a process that is frozen as soon as it has made a claim, until it thaws."""

    inner: MemoryDocuments
    frozen: asyncio.Event = field(factory=asyncio.Event)
    thawed: asyncio.Event = field(factory=asyncio.Event)
    claims: int = 0

    async def claim(self, name: str) -> Document | None:
        document = await self.inner.claim(name)
        self.claims += 1
        self.frozen.set()
        await self.thawed.wait()
        return document

    async def read(self, prefix: str) -> list[Document]:
        return await self.inner.read(prefix)

    async def write(self, document: Document, body: bytes) -> Document:
        return await self.inner.write(document, body)

    async def give_back(self, names: Collection[str]) -> None:
        """Its claim has expired before."""


@pytest.mark.parametrize("runs_before", [0, 1])
async def test_who_thaws_leaves_the_files_of_others_alone(
    sandbox: Sandbox, client: Client, tmp_path: Path, runs_before: int
) -> None:
    """It holds a claim, and an idea of what was committed, from before it was overtaken."""
    inner, company = MemoryDocuments(), sandbox.companies[0].id
    pull: dict[str, Any] = {"to": tmp_path, "companies": [company]}
    for _ in range(runs_before):
        await client.pull(["items"], **pull, store=KeptStore(inner))
        items = sandbox.data_set(company, "items")
        items.edit_at(3, {"name": "edited", "modifiedDate": now()})
    slow = FreezingDocuments(inner)
    overtaken = asyncio.ensure_future(client.pull(["items"], **pull, store=KeptStore(slow)))
    await slow.frozen.wait()
    await inner.give_back([f"pull/unit/items/{company}"])  # its lease expires
    gate = Gate()
    sandbox.faults.add(gate.stop, route="GET /data/items", skip=4, times=1)
    other = asyncio.ensure_future(client.pull(["items"], **pull, store=KeptStore(inner)))
    await asyncio.wait([other] if runs_before else [asyncio.ensure_future(gate.reached.wait())])

    slow.thawed.set()
    await until(lambda: slow.claims > 1)  # it has noticed
    gate.opened.set()

    for receipt in (await other, await overtaken):
        assert receipt.errors == []
    await assert_holds(sandbox, tmp_path, "items", company)


@define
class RefusingDocuments(MemoryDocuments):
    """A store that refuses the first part of a unit, after a while: another process has it."""

    asked: asyncio.Event = field(factory=asyncio.Event)
    answers: asyncio.Event = field(factory=asyncio.Event)
    writes: int = 0

    async def write(self, document: Document, body: bytes) -> Document:
        self.writes += document.name.startswith("pull/unit")
        if self.writes == 3:  # behind the new generation, and where its changes begin
            self.asked.set()
            await self.answers.wait()
            raise Fenced(document.name)
        return await super().write(document, body)


async def test_who_is_cancelled_looks_for_no_other_unit(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Also if the part that it finishes is refused."""
    documents = RefusingDocuments()
    pulling = asyncio.ensure_future(
        client.pull(["items"], to=tmp_path, store=KeptStore(documents), at_once=1)
    )
    await documents.asked.wait()
    pulling.cancel()
    await asyncio.sleep(0)
    documents.answers.set()
    await asyncio.wait([pulling])

    assert pulling.cancelled()
    assert documents.writes == 3


async def test_a_store_for_two_places(client: Client, postgres: Server, tmp_path: Path) -> None:
    """It belongs to one of two pulls that begin at once, and the other one is told."""
    async with Store(await postgres.new_database()) as store:
        pulls = [client.pull(["items"], to=tmp_path / one, store=store) for one in ("a", "b")]
        ends = await asyncio.gather(*pulls, return_exceptions=True)

    (error,) = (one for one in ends if isinstance(one, BaseException))
    assert isinstance(error, ConfigurationError)
    assert "the store belongs to a pull into" in str(error)


async def test_a_folder_in_which_another_has_just_begun(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a pull's, also to who looked for its mark a moment before there was one."""
    pull: dict[str, Any] = {
        "to": tmp_path,
        "format": "ndjson",
        "store": KeptStore(MemoryDocuments()),
    }
    await client.pull(["items"], **pull)
    mark = (tmp_path / "_pull.json").rename(tmp_path.with_name("mark"))
    read = Path.read_bytes

    def late(path: Path) -> bytes:
        try:
            return read(path)
        finally:
            if mark.exists():
                mark.rename(tmp_path / "_pull.json")

    monkeypatch.setattr(Path, "read_bytes", late)
    assert not (await client.pull(["items"], **pull)).errors


async def test_an_audit_knows_which_of_two_runs_came_later(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """To each unit: the run that ended last may have read it first."""
    company, gate = sandbox.companies[0].id, Gate()
    pull: dict[str, Any] = {
        "to": tmp_path,
        "companies": [company],
        "store": KeptStore(MemoryDocuments()),
    }
    sandbox.faults.add(gate.stop, route="GET /data/suppliers", times=1)
    first = asyncio.ensure_future(client.pull(["items", "suppliers"], **pull, at_once=1))
    await gate.reached.wait()
    sandbox.data_set(company, "items").edit_at(3, {"name": "edited", "modifiedDate": now()})
    await client.pull(["items"], **pull)
    gate.opened.set()
    await first

    findings = [one async for one in audit(open_sink(tmp_path, None, None, tokens=True))]
    assert [one.problem for one in findings] == ["", ""]


@define
class FailingDocuments(MemoryDocuments):
    """A store that fails once, at its *fails*-th read."""

    fails: int = 0

    async def read(self, prefix: str) -> list[Document]:
        self.fails -= 1
        if not self.fails:
            raise JournalError("not now")
        return await super().read(prefix)


async def test_who_fails_at_the_store_keeps_no_unit(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Wherever it is, the next one finds all units free."""
    store = KeptStore(documents := FailingDocuments())
    for read in range(1, 10):
        documents.fails = read
        with suppress(JournalError):
            await client.pull(["items"], to=tmp_path, store=store)
    documents.fails = 0

    async with asyncio.timeout(20):
        assert not (await client.pull(["items"], to=tmp_path, store=store)).errors
    await assert_agrees(sandbox, tmp_path, "items")
