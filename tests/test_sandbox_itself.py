"""The sandbox as a tool: its data, its clock, what it remembers, how it starts and stops."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

from integration_sdk.sandbox import Sandbox, serve
from integration_sdk.sandbox._clock import Clock, http_date, iso
from tests.sandbox_support import DELIVERY, holding, serving, until

pytestmark = pytest.mark.virtual_time


def _lets_wait(connections: int) -> bool:
    limit = Path("/proc/sys/net/core/somaxconn")
    return limit.exists() and int(limit.read_text()) >= connections


# ---------------------------------------------------------------------- data


KINDS = (
    *("accounts", "bills", "creditNotes", "customers", "directCosts", "invoices", "items"),
    *("journalEntries", "payments", "suppliers"),
)


async def test_an_invoice_looks_like_one() -> None:
    """26 fields, about 2.2 KB, amounts with two digits that add up to the cent."""
    async with serving(invoices=500) as http:
        reply = await http.get(f"{http.company}/data/invoices", pageSize=500)
    for invoice in reply.body["results"]:
        net = sum(line["subTotal"] for line in invoice["lineItems"])
        assert len(invoice) == 26
        assert invoice["subTotal"] == net
        assert invoice["totalAmount"] == net + invoice["totalTaxAmount"]
        assert invoice["totalAmount"].as_tuple().exponent == -2
        assert 0 <= invoice["amountDue"] <= invoice["totalAmount"]
        assert set(invoice["customerRef"]) == {"id", "companyName"}
        assert invoice["dueDate"] > invoice["issueDate"]
    assert 1_900 < len(reply.text) / 500 < 2_500


def test_references_lead_somewhere() -> None:
    """A customer, supplier, account, item or invoice that a record names is in the same books."""
    sandbox = Sandbox(companies=1, invoices=300)
    books = {kind: list(sandbox.data_set(sandbox.companies[0].id, kind)) for kind in KINDS}
    ids = {kind: {record["id"] for record in records} for kind, records in books.items()}
    refs = {"customerRef": "customers", "supplierRef": "suppliers", "contactRef": "suppliers"}
    refs |= {"accountRef": "accounts", "itemRef": "items", "links": "invoices"}

    def followed(value: Any) -> Iterator[str]:
        for name, inner in value.items() if isinstance(value, dict) else ():
            for each in inner if isinstance(inner, list) else [inner]:
                if name in refs:
                    assert each["id"] in ids[refs[name]]
                    yield name
                yield from followed(each)

    found = {name for records in books.values() for each in records for name in followed(each)}
    assert found == set(refs)


def test_records_add_up() -> None:
    """Totals are the sums of the lines, and the two sides of a journal entry balance."""
    sandbox = Sandbox(companies=1, invoices=0)
    for kind in ("bills", "creditNotes", "directCosts"):
        for record in sandbox.data_set(sandbox.companies[0].id, kind):
            total = sum(line["totalAmount"] for line in record["lineItems"])
            assert record["totalAmount"] == total > 0
    for entry in sandbox.data_set(sandbox.companies[0].id, "journalEntries"):
        assert sum(line["netAmount"] for line in entry["journalLines"]) == 0


def test_identifiers_lead_back_to_their_record() -> None:
    """Any record is found by its identifier, and only among its own kind and company."""
    sandbox = Sandbox(companies=2, invoices=1_000)
    sets = [sandbox.data_set(company.id, "invoices") for company in sandbox.companies]
    sets.append(sandbox.data_set(sandbox.companies[0].id, "items"))
    for records in sets:
        for identifier in records.ids():
            found = [
                json.loads(row)["id"] if (row := each.get(identifier)) else None for each in sets
            ]
            assert found == [identifier if each is records else None for each in sets]
        assert records.get(identifier[:-11] + "not-hexadec") is None


async def test_a_seed_fixes_everything() -> None:
    """Same seed: same key, companies, records and push keys; another seed: none of them."""

    async def look(seed: int) -> list[Any]:
        start = datetime(2024, 1, 1, tzinfo=UTC)
        async with serving(seed=seed, starts=start) as http:
            pages = [(await http.get(f"{http.company}/data/{kind}")).text for kind in KINDS]
            key = (await http.push())["pushOperationKey"]
            return [http.sandbox.api_key, http.first.id, key, *pages]

    first, again, other = await look(1), await look(1), await look(2)
    assert first == again
    assert not set(first) & set(other)


async def test_companies_differ() -> None:
    """No two companies share an identifier or a record."""
    async with serving(companies=25) as http:
        page = (await http.get("/companies")).body["results"]
        rows = [
            (await http.get(f"/companies/{entry['id']}/data/customers", pageSize=1)).text
            for entry in page
        ]

    assert len({entry["id"] for entry in page}) == len(set(rows)) == 25
    assert len({entry["name"] for entry in page}) == 25


async def test_a_million_invoices_are_at_hand() -> None:
    """The last page of a million is as near as the first, and any record by its identifier."""
    async with serving(invoices=1_000_000) as http:
        path = f"{http.company}/data/invoices"
        last = (await http.get(path, page=200_000, pageSize=5)).body
        one = await http.get(f"{path}/{last['results'][4]['id']}")

    assert last["totalResults"] == 1_000_000
    assert "next" not in last["_links"]
    assert one.body == last["results"][4]
    assert one.body["invoiceNumber"] == "INV-0999999"


async def test_changed_lists_are_still_right() -> None:
    """After updates, deletes and pushes a page holds what the list holds."""
    async with serving(invoices=20) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        ids = records.ids()
        records.replace(ids[3], {"id": ids[3], "note": "changed"})
        records.delete(ids[0])
        records.insert(1, {"id": "new", "note": "inserted"})
        records.append({"id": "last"})
        path = f"{http.company}/data/invoices"
        body = (await http.get(path)).body
        gone = await http.get(f"{path}/{ids[0]}")
        with pytest.raises(LookupError):
            records.delete(ids[0])
        with pytest.raises(LookupError):
            records.replace("never", {})

    expected = [ids[1], "new", *ids[2:], "last"]
    assert [entry["id"] for entry in body["results"]] == expected == records.ids()
    assert body["results"][3] == {"id": ids[3], "note": "changed"}
    assert (body["totalResults"], len(records), gone.status) == (21, 21, 404)


# ---------------------------------------------------------------------- pushes as it knows them


async def test_it_tells_the_truth_about_pushes() -> None:
    """sandbox.pushes: key, lane, record, state and times, however they were answered."""
    async with serving(push_seconds=(60, 60)) as http:
        operation = await http.push()
        http.sandbox.push(http.connection(1), "bills", {})
        http.sandbox.clock.advance(minutes=2)
        first, second = http.sandbox.pushes

    assert (first.key, first.record) == (operation["pushOperationKey"], DELIVERY)
    assert (first.status, first.foreign, second.status, second.foreign) == (
        "Success",
        False,
        "Failed",
        True,
    )
    assert first.completed == first.requested + 60


async def test_pushes_end_without_anybody_asking() -> None:
    """Records appear in the order of completion, not of asking; deleted companies harm nobody."""
    async with serving() as http:
        for number, seconds in enumerate((30, 10, 20)):
            http.sandbox.faults.push_seconds(seconds, times=1)
            await http.post(f"{http.at()}/push/invoices", DELIVERY | {"note": str(number)})
        http.sandbox.push(http.sandbox.companies[2].connections[0], "invoices", DELIVERY)
        await http.call("DELETE", f"/companies/{http.sandbox.companies[2].id}")
        http.sandbox.clock.advance(minutes=1)
        body = (await http.get(f"{http.company}/data/invoices", page=3)).body

    assert [entry["note"] for entry in body["results"][-3:]] == ["1", "2", "0"]


async def test_ten_thousand_pushes_pass_in_three_hours() -> None:
    """Open pushes cost nothing: no task each, and a day is one call of advance()."""
    async with serving(push_seconds=(3600, 3 * 3600), remember=0) as http:
        tasks = len(asyncio.all_tasks())
        for _ in range(10_000):
            http.sandbox.push(http.connection(), "items", {"code": "x"})
        assert len(asyncio.all_tasks()) == tasks
        statuses = []
        for _ in range(4):
            body = (await http.get(f"{http.company}/push", query="status=Pending")).body
            statuses.append(body["totalResults"])
            http.sandbox.clock.advance(hours=1)

    assert statuses[:2] == [10_000, 10_000]
    assert 4_500 < statuses[2] < 5_500
    assert statuses[3] == 0


# ---------------------------------------------------------------------- clock


class Loop:
    """A loop whose time is set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def time(self) -> float:
        return self.at


def test_the_clock_follows_its_loop() -> None:
    """The service's time runs with the loop's, real or virtual, and stands while stopped."""
    clock, loop = Clock(datetime(2024, 1, 1)), Loop()  # noqa: DTZ001 - read as UTC
    clock.follow(loop)  # type: ignore[arg-type] # time() is all it asks for
    loop.at += 3600
    clock.advance(minutes=30)
    clock.rest()
    loop.at += 3600

    assert iso(clock.now()) == "2024-01-01T01:30:00.000Z"
    with pytest.raises(ValueError, match="negative"):
        clock.advance(seconds=-1)


def test_times_are_written_as_the_service_does() -> None:
    """Up to 7 digits and Z; HTTP dates are never early."""
    moment = datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC).timestamp()

    assert iso(moment, digits=7) == "2024-02-29T12:00:00.1234560Z"
    assert iso(moment, digits=0) == "2024-02-29T12:00:00Z"
    assert http_date(moment) == "Thu, 29 Feb 2024 12:00:01 GMT"


# ---------------------------------------------------------------------- what it remembers


async def test_it_remembers_what_it_saw() -> None:
    """requests: method, path, query, headers, status, body, time; newest last."""
    async with serving() as http:
        await http.get("/companies", page=1)
        await http.post(f"{http.at()}/push/invoices", DELIVERY, timeoutInMinutes=5)
        first, second = http.sandbox.requests
        counts = [
            http.sandbox.count("POST", "/push/"),
            http.sandbox.count(),
            http.sandbox.count(status=200, path="/companies"),
            http.sandbox.count("GET", "/push/"),
        ]
        http.sandbox.requests.clear()

        assert http.sandbox.count() == 0
        assert http.sandbox.served == 2
    assert (first.method, first.path, first.query, first.status) == (
        "GET",
        "/companies",
        {"page": "1"},
        200,
    )
    assert first.headers["authorization"].startswith("Basic ")
    assert (json.loads(second.body), second.query) == (DELIVERY, {"timeoutInMinutes": "5"})
    assert second.at >= first.at
    assert counts == [1, 2, 2, 0]


async def test_what_it_remembers_is_bounded() -> None:
    """remember=n keeps at least the latest n and at most twice as many; 0 keeps none."""
    async with serving(remember=3) as some, serving(remember=0) as none:
        for page in range(1, 21):
            await some.get("/companies", page=page)
            assert min(page, 3) <= len(some.sandbox.requests) <= 6
        await none.get("/companies")

        assert some.sandbox.requests[-1].query == {"page": "20"}
        assert (some.sandbox.served, none.sandbox.requests, none.sandbox.served) == (20, [], 1)


async def test_the_crowd_is_counted() -> None:
    """most_in_flight: how many requests were being answered at once."""
    async with serving() as http:
        gate = asyncio.Event()
        http.sandbox.faults.add(holding(gate))
        calls = [asyncio.create_task(http.get("/companies")) for _ in range(7)]
        await until(lambda: http.sandbox.most_in_flight == 7)
        gate.set()

        assert [(await call).status for call in calls] == [200] * 7


# ---------------------------------------------------------------------- starting and stopping


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"invoices": -1}, "^invoices cannot be -1: Expected `int` >= 0$"),
        ({"companies": 1.5}, "companies cannot be 1.5: Expected `int`"),
        ({"companies": True}, "companies cannot be True: Expected `int`"),
        ({"remember": -1}, "remember cannot be -1"),
        ({"port": 70_000}, "port cannot be 70000: Expected `int` <= 65535"),
        ({"port": -1}, "port cannot be -1: Expected `int` >= 0"),
        (
            {"dialect": "klingon"},
            "dialect cannot be 'klingon': .* document, published",
        ),
        (
            {"spelling": "connection"},
            "spelling cannot be .* one of dataConnectionId, ",
        ),
        ({"push_seconds": (2, 1)}, "push_seconds cannot be .* least <= most"),
        ({"push_seconds": 5}, r"push_seconds cannot be 5: Expected `\(least, most\)`"),
        ({"push_seconds": ("a", "b")}, "push_seconds cannot be"),
        ({"daily_quota": -5}, "daily_quota cannot be -5: Expected `int` >= 0"),
        ({"daily_quota": "many"}, "daily_quota cannot be"),
        ({"seed": "abc"}, "seed cannot be 'abc': Expected `int`"),
        ({"seed": 1.5}, "seed cannot be 1.5: Expected `int`"),
        ({"legacy_removed": "2023-04-10"}, "legacy_removed cannot be .* Expected `bool . date`"),
        ({"starts": "2024-01-01"}, "starts cannot be '2024-01-01': Expected `datetime . null`"),
        ({"account_age_days": -1}, "account_age_days cannot be -1"),
        ({"account_age_days": 366}, "account_age_days needs free_plan: no other account expires"),
        ({"companies": 51, "free_plan": True}, "companies cannot be 51: the free plan holds 50"),
        ({"api_key": ""}, "api_key cannot be empty: without one, one is made from the seed"),
        ({"free_plan": "no"}, "free_plan cannot be 'no'"),
        ({"api_key": 7}, "api_key cannot be"),
        ({"host": None}, "host cannot be None"),
    ],
)
def test_odd_settings_are_refused(options: dict[str, Any], message: str) -> None:
    """A setting that makes no sense is named, before anything is started."""
    with pytest.raises(ValueError, match=message):
        Sandbox(**options)


async def test_a_taken_port_is_named() -> None:
    """OSError says which address could not be had, and nothing is left open."""
    async with Sandbox(invoices=1) as first:
        port = int(first.base_url.rpartition(":")[2])
        second = Sandbox(invoices=1, port=port)
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            await second.start()
        await second.stop()
        with pytest.raises(RuntimeError, match="not started"):
            _ = second.base_url


async def test_it_can_be_started_again() -> None:
    """After stop() the books are as they were; starting twice is a mistake."""
    sandbox = Sandbox(invoices=1)
    await sandbox.start()
    with pytest.raises(RuntimeError, match="already started"):
        await sandbox.start()
    sandbox.push(sandbox.companies[0].connections[1], "invoices", DELIVERY)
    await sandbox.stop()
    await sandbox.stop()
    async with sandbox:
        assert [push.status for push in sandbox.pushes] == ["Success"]


async def test_stopping_cuts_what_is_under_way() -> None:
    """A call that would take an hour does not hold up the end; no task and no socket stay."""
    async with serving() as http:
        http.sandbox.faults.latency(3600)
        waiting = asyncio.create_task(http.get("/companies"))
        await until(lambda: http.sandbox.most_in_flight)
        await http.sandbox.stop()
        (error,) = await asyncio.gather(waiting, return_exceptions=True)

    assert isinstance(error, Exception)


async def test_it_serves_until_cancelled() -> None:
    """serve() says where it is, its key, lines to paste, a page; it ends when cancelled."""
    said: list[str] = []
    sandbox = Sandbox(invoices=1, api_key="open 'sesame")
    serving_task = asyncio.create_task(serve(sandbox, said.append))
    await until(lambda: len(said) == 5)
    assert said[:2] == [f"Sandbox: {sandbox.base_url}", "API key: open 'sesame"]
    curl, option, header, url = shlex.split(said[2].removeprefix("Try: "))
    name, _, value = header.partition(": ")
    async with aiohttp.ClientSession() as http, http.get(url, headers={name: value}) as answer:
        assert (curl, option, answer.status) == ("curl", "-H", 200)
    assert said[3].startswith(f"Look: {sandbox.base_url}/ ")
    assert shlex.split(said[4]) == [
        *("Client:", "export"),
        f"INTEGRATION_SDK_BASE_URL={sandbox.base_url}",
        f"INTEGRATION_SDK_API_KEY={sandbox.api_key}",
    ]
    serving_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving_task


@pytest.mark.parametrize(
    ("dialect", "last"), [("document", []), ("published", ["published", "--published"])]
)
async def test_what_it_prints_names_the_dialect_of_the_client(
    dialect: Literal["document", "published"], last: list[str]
) -> None:
    """A client of another dialect would rely on what this service does not do."""
    said: list[str] = []
    task = asyncio.create_task(serve(Sandbox(invoices=1, dialect=dialect), said.append))
    await until(lambda: said and said[-1].startswith("Client: ") and len(said) >= 5 + bool(last))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    clients = [line for line in said if line.startswith("Client: ")]
    assert len(clients) == 1 + bool(last)
    assert all(word in clients[-1] for word in last)
    assert ("Client(dialect=Dialect.published())" in clients[-1]) == bool(last)


SLASHED = ["/companies", "{company}", "{company}/data/invoices", "{company}/push", "{push}"]


@pytest.mark.parametrize("path", SLASHED)
async def test_a_slash_at_the_end_of_a_path_makes_no_difference(path: str) -> None:
    """A generated client of the public API asks so, with the same faults in force."""
    async with serving(push_seconds=(0, 0)) as http:
        key = (await http.push())["pushOperationKey"]
        path = path.format(company=http.company, push=f"{http.company}/push/{key}")
        plain, slashed, twice = [await http.get(path + end) for end in ("", "/", "//")]
        http.sandbox.faults.status(503, route=f"GET {path}", times=1)
        broken = await http.get(path + "/")
        sent = http.sandbox.requests[-1].path

    assert (plain.status, slashed.status, twice.status, broken.status) == (200, 200, 404, 503)
    assert {**slashed.body, "_links": None} == {**plain.body, "_links": None}
    assert sent == f"{path}/"


async def test_there_is_no_push_list_with_a_slash_either() -> None:
    """A fault of one address is a fault of its other spelling."""
    async with serving() as http:
        http.sandbox.faults.no_push_list()

        assert (await http.get(f"{http.company}/push/")).status == 404


async def test_a_half_sent_push_is_no_push(caplog: pytest.LogCaptureFixture) -> None:
    """A body that breaks off is neither recorded nor an error of the sandbox."""
    async with serving() as http:
        port = int(http.sandbox.base_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            head = (
                f"POST {http.at()}/push/invoices HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n"
            )
            line.sendall(head.encode() + b'{"a":')
            await until(lambda: http.sandbox.most_in_flight)
        assert (await http.get("/companies")).status == 200
        assert http.sandbox.pushes == []
    assert not caplog.records


async def test_who_leaves_in_the_middle_of_a_page_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client may cancel what it does not want any more; a test's log stays empty."""
    async with serving(invoices=5000) as http:
        page = f"{http.sandbox.base_url}/companies/{http.first.id}/data/invoices?pageSize=5000"
        async with http.session.get(page) as answer:
            assert answer.status == 200
            answer.close()
        await until(lambda: http.sandbox._server._handling == set())
    assert not caplog.records


async def test_paths_are_decoded_by_segment() -> None:
    """An encoded slash stays within its segment; absolute targets are understood."""
    async with serving() as http:
        odd = await http.get(f"/companies/{http.first.id}%2Fpush")
        port = int(http.sandbox.base_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://elsewhere/companies HTTP/1.1\r\nHost: x\r\n\r\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert odd.status == 404
    assert line.split()[1] == b"401"


@pytest.mark.skipif(not _lets_wait(300), reason="this system lets fewer connections wait")
async def test_a_crowd_that_comes_at_once_is_let_in() -> None:
    """While the loop is busy, connections wait for it, and are not left without an answer."""
    async with serving() as http:
        address = ("127.0.0.1", int(http.sandbox.base_url.rpartition(":")[2]))
        with ExitStack() as crowd:
            for _ in range(300):  # without a turn of the loop, which would accept them
                crowd.enter_context(socket.create_connection(address, timeout=5))


async def test_bodies_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the limit is 413 with the error body."""
    monkeypatch.setattr("integration_sdk.sandbox._http.LARGEST_BODY", 1000)
    async with serving() as http:
        reply = await http.post(f"{http.at()}/push/invoices", {"note": "x" * 1000})

    assert reply.status == reply.body["statusCode"] == 413
