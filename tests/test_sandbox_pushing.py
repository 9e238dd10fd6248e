"""Pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product

import pytest

from integration_sdk import Client
from tests.sandbox_support import DELIVERY, serving

pytestmark = pytest.mark.virtual_time

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PENDING_FIELDS = {
    "pushOperationKey",
    "companyId",
    "dataConnectionId",
    "dataType",
    "status",
    "requestedOnUtc",
    "completedOnUtc",
    "data",
    "validation",
}


# ---------------------------------------------------------------------- Push options


async def test_options_describe_the_object_to_push() -> None:
    """Push options description: type Object, required false at top level, properties."""
    async with serving() as http:
        body = (await http.get(f"{http.at()}/dataTypes/invoices/options/POST")).body

    assert (body["type"], body["required"]) == ("Object", False)
    assert body["displayName"]
    assert body["description"]
    assert body["properties"]["issueDate"]["required"] is True
    choice = body["properties"]["status"]["options"][0]
    assert choice == {"value": "Draft", "type": "String", "displayName": "Draft"}
    warning = body["properties"]["invoiceNumber"]["validation"]["warnings"][0]
    assert set(warning) == {"field", "details"}
    assert warning["field"] == "invoiceNumber"


async def test_every_data_type_is_described_all_the_way_down() -> None:
    """Options belong to "the company's connection and data type": ten types, four platforms."""
    kinds = "invoices bills customers suppliers accounts items payments creditNotes directCosts"
    async with serving() as http:
        for number, kind in product(range(4), f"{kinds} journalEntries".split()):
            reply = await http.get(f"{http.at(number)}/dataTypes/{kind}/options/POST")
            if (number, kind) == (1, "journalEntries"):  # Swiftbooks takes none
                assert reply.status == 404
                continue
            assert reply.body["type"] == "Object"
            assert any(entry["required"] for entry in reply.body["properties"].values())
            left = [reply.body]
            while left:
                described = left.pop()
                left += described.get("properties", {}).values()
                assert {"type", "displayName", "description", "required"} <= set(described)
                known = {"String", "Number", "Boolean", "DateTime", "Object", "Array"}
                assert described["type"] in known
                assert bool(described.get("properties")) == (
                    described["type"] in {"Object", "Array"}
                )


async def test_choices_are_called_by_words() -> None:
    """An abbreviation stays as it is: "GBP", not "G b p"; on every level."""
    async with serving() as http:
        invoice = (await http.get(f"{http.at()}/dataTypes/invoices/options/POST")).body
        payment = (await http.get(f"{http.at()}/dataTypes/payments/options/POST")).body

    currency = invoice["properties"]["currency"]["options"]
    assert [choice["displayName"] for choice in currency] == ["GBP", "EUR", "USD"]
    link = payment["properties"]["lines"]["properties"]["links"]["properties"]["type"]
    named = [(choice["value"], choice["displayName"]) for choice in link["options"]]
    assert (link["required"], named[1]) == (True, ("CreditNote", "Credit note"))


# ---------------------------------------------------------------------- Push operation, states


async def test_an_accepted_push_is_pending() -> None:
    """ "completedOnUtc is null; the operation is returned to the caller"; data "empty object"."""
    async with serving() as http:
        reply = await http.post(f"{http.at()}/push/invoices", DELIVERY)

    operation = reply.body
    assert reply.status == 200
    assert set(operation) == PENDING_FIELDS
    assert (operation["status"], operation["completedOnUtc"]) == ("Pending", None)
    assert operation["data"] == {}
    assert UUID.fullmatch(operation["pushOperationKey"])
    assert operation["dataConnectionId"] == http.connection().id
    assert datetime.fromisoformat(operation["requestedOnUtc"]).tzinfo == UTC


async def test_a_push_that_succeeds_shows_the_record_as_in_the_platform() -> None:
    """Pending -> Success: "completedOnUtc set; data holds the object as it appears"."""
    async with serving(push_seconds=(60, 60)) as http:
        operation = await http.push()
        http.sandbox.clock.advance(seconds=59)
        assert (await http.pushed(operation))["status"] == "Pending"
        http.sandbox.clock.advance(seconds=2)
        ended = await http.pushed(operation)
        records = (await http.get(f"{http.company}/data/invoices/{ended['data']['id']}")).body

    assert ended["status"] == "Success"
    assert ended["completedOnUtc"] > ended["requestedOnUtc"]
    assert ended["data"].items() >= {**DELIVERY, "lineItems": ended["data"]["lineItems"]}.items()
    assert {"id", "sourceModifiedDate", "modifiedDate", "metadata"} <= set(ended["data"])
    assert records == ended["data"]


async def test_created_records_appear_in_the_data_list() -> None:
    """What a push made is read back by the next pull."""
    async with serving() as http:
        for _ in range(3):
            await http.push()
        http.sandbox.clock.advance(minutes=1)
        body = (await http.get(f"{http.company}/data/invoices", page=3)).body

    assert body["totalResults"] == 253
    assert [invoice["invoiceNumber"] for invoice in body["results"][-3:]] == ["INV-17"] * 3


@pytest.mark.parametrize(
    ("change", "item"),
    [
        ({"status": "Lost"}, "status"),
        ({"issueDate": None}, "issueDate"),
        ({"issueDate": ""}, "issueDate"),
        ({"customerRef": {}}, "customerRef.id"),
        ({"lineItems": []}, "lineItems"),
        ({"lineItems": [{"quantity": 1}]}, "lineItems[0].unitAmount"),
    ],
)
async def test_a_push_that_fails_says_why(change: dict[str, object], item: str) -> None:
    """Pending -> Failed: "completedOnUtc set; validation details the failure"."""
    async with serving() as http:
        reply = await http.post(f"{http.at()}/push/invoices", DELIVERY | change)
        http.sandbox.clock.advance(minutes=1)
        ended = await http.pushed(reply.body)
        total = (await http.get(f"{http.company}/data/invoices")).body["totalResults"]

    assert (reply.body["status"], reply.errors) == ("Pending", [])
    assert (ended["status"], ended["data"]) == ("Failed", {})
    assert ended["completedOnUtc"] is not None
    assert [error["itemId"] for error in ended["validation"]["errors"]] == [item]
    assert total == 250


async def test_some_platforms_answer_at_once() -> None:
    """ "Platform processes synchronously": Success or Failed "returned directly"."""
    async with serving() as http:
        good = await http.push(1)
        bad = await http.post(f"{http.at(1)}/push/invoices", DELIVERY | {"status": "Lost"})

    assert (good["status"], bad.body["status"]) == ("Success", "Failed")
    assert good["data"]["invoiceNumber"] == "INV-17"
    assert bad.status == 200


async def test_an_offline_platform_leaves_pushes_pending() -> None:
    """Rule 1: "can stay Pending indefinitely when no timeoutInMinutes is set"."""
    async with serving() as http:
        operation = await http.push(2)
        http.sandbox.clock.advance(days=400)
        assert (await http.pushed(operation))["status"] == "Pending"
        http.sandbox.bring_online(http.connection(2))
        http.sandbox.clock.advance(minutes=1)
        assert (await http.pushed(operation))["status"] == "Success"


async def test_a_push_past_its_deadline_is_never_processed() -> None:
    """Pending -> TimedOut: "not processed after the deadline"."""
    async with serving() as http:
        operation = await http.push(2, timeoutInMinutes=30)
        http.sandbox.clock.advance(minutes=29, seconds=59)
        assert (await http.pushed(operation))["status"] == "Pending"
        http.sandbox.clock.advance(seconds=2)
        ended = await http.pushed(operation)
        http.sandbox.bring_online(http.connection(2))
        http.sandbox.clock.advance(hours=1)
        later = await http.pushed(operation)
        total = (await http.get(f"{http.company}/data/invoices")).body["totalResults"]

    assert operation["timeoutInMinutes"] == ended["timeoutInMinutes"] == 30
    assert (ended["status"], ended["data"]) == ("TimedOut", {})
    assert ended["completedOnUtc"] is not None
    assert later == ended
    assert total == 250


async def test_a_slow_platform_misses_the_deadline() -> None:
    """The deadline holds for platforms that are merely slow, too."""
    async with serving(push_seconds=(61, 61)) as http:
        operation = await http.push(timeoutInMinutes=1)
        http.sandbox.clock.advance(hours=1)
        assert (await http.pushed(operation))["status"] == "TimedOut"


@pytest.mark.parametrize("minutes", ["0", "-1", "soon", "1.5", "2147483648"])
async def test_an_odd_deadline_is_a_bad_request(minutes: str) -> None:
    """timeoutInMinutes is an "integer"."""
    async with serving() as http:
        path = f"{http.at()}/push/invoices"
        reply = await http.post(path, DELIVERY, timeoutInMinutes=minutes)

        assert http.sandbox.pushes == []
    assert reply.status == 400
    assert reply.errors[0]["itemId"] == "timeoutInMinutes"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"a":NaN}',
        b'{"a":1e99999999999999999999}',
        b"\xff",
        b"[" * 100_000,
        b'{"lineItems":' + b"[" * 600 + b"]" * 600 + b"}",
    ],
)
async def test_a_body_that_is_no_object_is_a_bad_request(body: bytes) -> None:
    """Request body: "JSON object whose properties conform to the options description"."""
    async with serving() as http:
        reply = await http.call("POST", f"{http.at()}/push/invoices", data=body)

        assert http.sandbox.pushes == []
    assert reply.status == 400


async def test_unlisted_fields_are_dropped_and_warned_of() -> None:
    """ "fields not listed ... may be dropped by the platform"."""
    async with serving() as http:
        reply = await http.post(f"{http.at(1)}/push/invoices", DELIVERY | {"colour": "red"})

    assert reply.body["status"] == "Success"
    assert "colour" not in reply.body["data"]
    assert reply.body["validation"]["warnings"][0]["itemId"] == "colour"


@pytest.mark.parametrize(
    ("change", "item"),
    [
        ({"colour": "red"}, "colour"),
        ({"totalAmount": "12"}, "totalAmount"),
        ({"issueDate": "yesterday"}, "issueDate"),
        ({"customerRef": "c-1"}, "customerRef"),
        ({"lineItems": {}}, "lineItems"),
        ({"lineItems": ["x"]}, "lineItems[0]"),
        ({"invoiceNumber": "N" * 22}, "invoiceNumber"),
        ({"dueDate": None}, "dueDate"),
    ],
)
async def test_the_strict_platform_takes_nothing_else(change: dict[str, object], item: str) -> None:
    """ "... and may produce validation errors"; length rules of "details" are enforced."""
    async with serving() as http:
        good = await http.push(3)
        bad = (await http.post(f"{http.at(3)}/push/invoices", DELIVERY | change)).body
        http.sandbox.clock.advance(minutes=1)
        ended = [await http.pushed(operation) for operation in (good, bad)]

    assert [operation["status"] for operation in ended] == ["Success", "Failed"]
    assert [error["itemId"] for error in ended[1]["validation"]["errors"]] == [item]
    assert ended[1]["validation"]["warnings"] == []  # what is refused is not dropped, too


@pytest.mark.parametrize(
    ("text", "is_date"),
    [
        ("2024-05-31", True),
        ("2024-05-31T10:00", True),
        ("2024-05-31T10:00:00Z", True),
        ("2024-05-31T10:00:00.1234567+01:00", True),
        ("2024-05-31T10:00:00+0100", True),
        ("20240531", False),
        ("2024-W22-5", False),
        ("2024-05-31 10:00", False),
        ("2024-05-31T10", False),
        ("2024-05-31T10:00:00,5Z", False),
        ("2024-02-30", False),
        ("2024-05-31\n", False),
    ],
)
async def test_the_strict_platform_and_the_check_read_the_same_dates(
    text: str, is_date: bool
) -> None:
    """What `PushOptions.check` lets by is a date to the platform, too, and nothing else is."""
    async with serving() as http:
        record = DELIVERY | {"issueDate": text}
        async with Client(http.sandbox.api_key, http.sandbox.base_url) as client:
            books = client.company(http.first.id).connection(http.connection(3).id)
            problems = (await books.options("invoices")).check(record)
        pushed = (await http.post(f"{http.at(3)}/push/invoices", record)).body
        http.sandbox.clock.advance(minutes=1)
        errors = (await http.pushed(pushed))["validation"]["errors"]

    assert [each["itemId"] for each in errors] == ([] if is_date else ["issueDate"])
    assert [problem.path for problem in problems] == ([] if is_date else ["issueDate"])


async def test_money_comes_back_digit_for_digit() -> None:
    """data is "the object as it appears in the platform": amounts are exact."""
    line = b'{"unitAmount":12345678901234567.89,"quantity":1.10}'
    sent = b'{"customerRef":{"id":"c"},"issueDate":"2024-01-01","status":"Draft","lineItems":[%b]}'
    async with serving() as http:
        reply = await http.call("POST", f"{http.at(1)}/push/invoices", data=sent % line)

    assert line.decode() in reply.text
    assert reply.body["data"]["lineItems"][0]["unitAmount"] == Decimal("12345678901234567.89")


# ---------------------------------------------------------------------- Monitor pushes


async def test_pushes_are_listed_most_recent_first() -> None:
    """ "one that lists the most recent push operations"."""
    async with serving() as http:
        keys = [(await http.push(n % 3))["pushOperationKey"] for n in range(7)]
        body = (await http.get(f"{http.company}/push", pageSize=3)).body
        rest = (await http.call("GET", body["_links"]["next"]["href"])).body
        ordered = (await http.get(f"{http.company}/push", orderBy="-requestedOnUtc")).body
        others = (await http.get(f"/companies/{http.sandbox.companies[1].id}/push")).body

    listed = [entry["pushOperationKey"] for entry in body["results"] + rest["results"]]
    assert listed == keys[:0:-1]
    assert [entry["pushOperationKey"] for entry in ordered["results"]] == keys[::-1]
    assert (body["totalResults"], others["totalResults"]) == (7, 0)


async def test_the_list_of_pushes_is_filtered_by_status_and_type() -> None:
    """Rule 4: "totalResults counts results after any filter"."""
    async with serving() as http:
        for number in (1, 2, 1):
            await http.push(number)
        await http.push(1, "accounts")
        path = f"{http.company}/push"
        done = (await http.get(path, query="status=Success")).body
        both = (await http.get(path, query="status=Pending||dataType=chartOfAccounts")).body
        oldest = (await http.get(path, orderBy="requestedOnUtc", pageSize=1)).body

    assert done["totalResults"] == 2
    assert {entry["status"] for entry in both["results"]} == {"Pending", "Failed"}
    assert oldest["results"][0]["status"] == "Success"


@pytest.mark.parametrize("query", [None, "status=Success", "requestedOnUtc>2000-01-01"])
@pytest.mark.parametrize("oldest_first", [False, True])
async def test_filters_keep_the_order(query: str | None, *, oldest_first: bool) -> None:
    """ "the most recent push operations" come first unless the oldest are asked for."""
    asked = {"query": query} if query else {}
    asked |= {"orderBy": "requestedOnUtc"} if oldest_first else {}
    async with serving() as http:
        keys = [(await http.push(1))["pushOperationKey"] for _ in range(3)]
        body = (await http.get(f"{http.company}/push", **asked)).body

    listed = [entry["pushOperationKey"] for entry in body["results"]]
    assert listed == (keys if oldest_first else keys[::-1])


async def test_an_unknown_push_is_not_found() -> None:
    """One push is "identified by its pushOperationKey", within its company."""
    async with serving() as http:
        operation = await http.push()
        other = f"/companies/{http.sandbox.companies[1].id}"
        replies = [
            await http.get(f"{http.company}/push/no-such-key"),
            await http.get(f"{other}/push/{operation['pushOperationKey']}"),
        ]

    assert [reply.status for reply in replies] == [404, 404]


# ---------------------------------------------------------------------- What counts as given

REQUIRED, LISTED, TYPED = "RequiredValidator", "OptionsValidator", "TypeValidator"


@pytest.mark.parametrize(
    ("name", "value", "anywhere", "strictly"),
    [
        ("currency", None, None, REQUIRED),  # Strictbooks requires it
        ("currency", "", LISTED, REQUIRED),
        ("currency", [], LISTED, REQUIRED),
        ("currency", "XXX", LISTED, LISTED),
        ("status", None, REQUIRED, REQUIRED),
        ("status", "", REQUIRED, REQUIRED),
        ("currencyRate", None, None, None),
        ("currencyRate", "", None, TYPED),
        ("currencyRate", [], None, TYPED),
        ("dueDate", "", None, REQUIRED),
        ("lineItems", "", REQUIRED, REQUIRED),
        ("lineItems", [], REQUIRED, REQUIRED),
        ("note", "", None, None),
        ("note", [], None, TYPED),
    ],
)
async def test_only_null_or_absent_is_not_given(
    name: str, value: object, anywhere: str | None, strictly: str | None
) -> None:
    """ "A property with an options array accepts only one of the listed value entries": an empty
    text is none of them, nor is it a Number.
    """
    record = {**DELIVERY, name: value}
    async with serving() as http:
        pushed = [(await http.post(f"{http.at(n)}/push/invoices", record)).body for n in (1, 3)]
        http.sandbox.clock.advance(seconds=60)
        ended = [await http.pushed(operation) for operation in pushed]

    named = [[each["validatorName"] for each in op["validation"]["errors"]] for op in ended]
    assert named == [[anywhere] if anywhere else [], [strictly] if strictly else []]
