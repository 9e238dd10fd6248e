"""Pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from tests.support.sandbox_support import DELIVERY, serving

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


# What is wrong with a record, and the item and check that refuse it: on any platform, on a strict
# one. Strictbooks requires a number, a due date and a currency.
UNPRICED = "lineItems[0].unitAmount Required"
VERDICTS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "", ""),
    ({"status": "Lost"}, "status Options", "status Options"),
    ({"status": ""}, "status Required", "status Required"),
    ({"issueDate": ""}, "issueDate Required", "issueDate Required"),
    ({"customerRef": {}}, "customerRef.id Required", "customerRef.id Required"),
    ({"lineItems": []}, "lineItems Required", "lineItems Required"),
    ({"lineItems": [{"quantity": 1}]}, UNPRICED, UNPRICED),
    # types, lengths and fields that are not listed are checked by the strict one alone
    ({"colour": "red"}, "", "colour Unlisted"),
    ({"customerRef": {"id": "c", "colour": 1}}, "", "customerRef.colour Unlisted"),
    ({"totalAmount": "12"}, "", "totalAmount Type"),
    ({"totalAmount": True}, "", "totalAmount Type"),
    ({"issueDate": "yesterday"}, "", "issueDate Type"),
    ({"customerRef": "c-1"}, "", "customerRef Type"),
    ({"lineItems": {}}, "", "lineItems Type"),
    ({"lineItems": ["x"]}, "", "lineItems[0] Type"),
    ({"invoiceNumber": "N" * 22}, "", "invoiceNumber Length"),
    *(
        ({"issueDate": f"2024-05-31{rest}"}, "", "")
        for rest in ("", "T10:00", "T10:00:00.1234567Z")
    ),
    *(
        ({"issueDate": odd}, "", "issueDate Type")
        for odd in ("20240531", "2024-02-30", "2024-W22-5")
    ),
    # only null or absent is not given: an empty text is none of the choices, nor is it a Number
    ({"dueDate": None}, "", "dueDate Required"),
    ({"currency": ""}, "currency Options", "currency Required"),
    ({"currency": "XXX"}, "currency Options", "currency Options"),
    ({"currencyRate": ""}, "", "currencyRate Type"),
    ({"note": []}, "", "note Type"),
]


@pytest.mark.parametrize(("change", "anywhere", "strictly"), VERDICTS)
async def test_a_push_that_fails_says_why(
    change: dict[str, Any], anywhere: str, strictly: str
) -> None:
    """Pending -> Failed: "completedOnUtc set; validation details the failure"."""
    async with serving() as http:
        paths = [f"{http.at(number)}/push/invoices" for number in (0, 3)]
        pending = [(await http.post(path, DELIVERY | change)).body for path in paths]
        http.sandbox.clock.advance(minutes=1)
        ended = [await http.pushed(operation) for operation in pending]
        total = (await http.get(f"{http.company}/data/invoices")).body["totalResults"]

    for before, after, wanted in zip(pending, ended, (anywhere, strictly), strict=True):
        assert (before["status"], before["validation"]["errors"]) == ("Pending", [])
        found = [(each["itemId"], each["validatorName"]) for each in after["validation"]["errors"]]
        assert found == ([(wanted.split()[0], f"{wanted.split()[1]}Validator")] if wanted else [])
        assert (after["status"], after["data"] == {}) == (
            ("Failed", True) if wanted else ("Success", False)
        )
        assert after["completedOnUtc"] is not None
    assert ended[1]["validation"]["warnings"] == []  # what is refused is not dropped, too
    assert total == 250 + (not anywhere) + (not strictly)


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
        other = f"/companies/{http.sandbox.companies[1].id}/push"
        others, foreign = (await http.get(other)).body, await http.get(f"{other}/{keys[0]}")

    listed = [entry["pushOperationKey"] for entry in body["results"] + rest["results"]]
    assert listed == keys[:0:-1]
    assert [entry["pushOperationKey"] for entry in ordered["results"]] == keys[::-1]
    assert (body["totalResults"], others["totalResults"], foreign.status) == (7, 0, 404)


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
