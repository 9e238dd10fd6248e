"""Pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.sandbox_support import DELIVERY, UUID, serving

pytestmark = pytest.mark.virtual_time


async def test_options_describe_the_object_to_push() -> None:
    """Push options description: type Object, required false at top level, properties.

    Options belong to "the company's connection and data type".
    """
    path = "dataTypes/{}/options/POST"
    async with serving() as http:
        invoices = (await http.get(f"{http.at()}/{path.format('invoices')}")).body
        others = await http.get(f"{http.at(1)}/{path.format('journalEntries')}")

    assert others.status == 404  # Swiftbooks takes none
    assert (invoices["type"], invoices["required"]) == ("Object", False)
    properties = invoices["properties"]
    assert properties["issueDate"]["required"] is True
    choice = {"value": "Draft", "type": "String", "displayName": "Draft"}
    assert properties["status"]["options"][0] == choice
    (warning,) = properties["invoiceNumber"]["validation"]["warnings"]
    assert (warning.keys(), warning["field"]) == ({"field", "details"}, "invoiceNumber")


async def test_a_push_is_pending_until_its_platform_is_done() -> None:
    """Pending -> Success: "completedOnUtc is null", data "empty object"; then "completedOnUtc set;
    data holds the object as it appears" in the platform.
    """
    async with serving(push_seconds=(60, 60)) as http:
        begun = await http.post(f"{http.at()}/push/invoices", DELIVERY)
        operation = begun.body
        http.sandbox.clock.advance(seconds=59)
        assert await http.pushed(operation) == operation
        http.sandbox.clock.advance(seconds=2)
        ended = await http.pushed(operation)
        record = (await http.get(f"{http.company}/data/invoices/{ended['data']['id']}")).body

    assert begun.status == 200
    assert UUID.fullmatch(operation["pushOperationKey"])
    assert datetime.fromisoformat(operation["requestedOnUtc"]).tzinfo == UTC
    assert operation == {
        "pushOperationKey": operation["pushOperationKey"],
        "companyId": http.first.id,
        "dataConnectionId": http.connection().id,
        "dataType": "invoices",
        "status": "Pending",
        "requestedOnUtc": operation["requestedOnUtc"],
        "completedOnUtc": None,
        "data": {},
        "validation": {"errors": [], "warnings": []},
    }
    assert ended["status"] == "Success"
    assert ended["completedOnUtc"] > ended["requestedOnUtc"]
    assert ended["data"].items() >= {**DELIVERY, "lineItems": ended["data"]["lineItems"]}.items()
    assert {"id", "sourceModifiedDate", "modifiedDate", "metadata"} <= set(ended["data"])
    assert record == ended["data"]


# What is wrong with a record, and the item and check that refuse it: on any platform, on a strict
# one. Strictbooks requires a number, a due date and a currency.
UNPRICED = "lineItems[0].unitAmount Required"
DATES = "2024-05-31", "2024-05-31T10:00", "2024-05-31T10:00:00.1234567Z"
VERDICTS: list[tuple[dict[str, Any], str, str]] = [
    *(({"issueDate": date}, "", "") for date in DATES),
    ({"status": "Lost"}, "status Options", "status Options"),
    ({"status": ""}, "status Required", "status Required"),
    ({"customerRef": {}}, "customerRef.id Required", "customerRef.id Required"),
    ({"lineItems": []}, "lineItems Required", "lineItems Required"),
    ({"lineItems": [{"quantity": 1}]}, UNPRICED, UNPRICED),
    # types, lengths and fields that are not listed are checked by the strict one alone
    ({"colour": "red"}, "", "colour Unlisted"),
    ({"customerRef": {"id": "c", "colour": 1}}, "", "customerRef.colour Unlisted"),
    ({"totalAmount": "12"}, "", "totalAmount Type"),
    ({"totalAmount": True}, "", "totalAmount Type"),
    *(({"issueDate": odd}, "", "issueDate Type") for odd in ("20240531", "2024-02-30", "soon")),
    ({"customerRef": "c-1"}, "", "customerRef Type"),
    ({"lineItems": {}}, "", "lineItems Type"),
    ({"lineItems": ["x"]}, "", "lineItems[0] Type"),
    ({"invoiceNumber": "N" * 22}, "", "invoiceNumber Length"),
    # only null or absent is not given: an empty text is none of the choices, nor is it a Number
    ({"dueDate": None}, "", "dueDate Required"),
    ({"currency": ""}, "currency Options", "currency Required"),
    ({"currencyRate": ""}, "", "currencyRate Type"),
]


async def test_a_push_that_fails_says_why() -> None:
    """Pending -> Failed: "completedOnUtc set; validation details the failure"."""
    async with serving() as http:
        paths = [f"{http.at(number)}/push/invoices" for number in (0, 3)]
        for change, *verdicts in VERDICTS:
            pending = [(await http.post(path, DELIVERY | change)).body for path in paths]
            http.sandbox.clock.advance(minutes=1)
            for before, wanted in zip(pending, verdicts, strict=True):
                after = await http.pushed(before)
                assert (before["status"], before["validation"]["errors"]) == ("Pending", [])
                errors = [
                    f"{each['itemId']} {each['validatorName'].removesuffix('Validator')}"
                    for each in after["validation"]["errors"]
                ]
                assert errors == [wanted] * bool(wanted)
                assert after["status"] == ("Failed" if wanted else "Success")
                assert bool(after["data"]) != bool(wanted)
                assert after["completedOnUtc"] is not None
            # what is refused is not dropped, too
            assert after["validation"]["warnings"] == []


async def test_fields_that_are_not_listed_are_dropped() -> None:
    """ "fields not listed ... may be dropped by the platform and may produce validation errors"."""
    async with serving() as http:
        pushed = (await http.post(f"{http.at(1)}/push/invoices", DELIVERY | {"hue": "red"})).body

    assert (pushed["status"], "hue" in pushed["data"]) == ("Success", False)
    assert [each["itemId"] for each in pushed["validation"]["warnings"]] == ["hue"]


async def test_an_offline_platform_leaves_pushes_pending() -> None:
    """Rule 1: "can stay Pending indefinitely when no timeoutInMinutes is set"; Pending ->
    TimedOut: "not processed after the deadline", whatever comes then.
    """
    async with serving() as http:
        operation, timed = await http.push(2), await http.push(2, timeoutInMinutes=30)
        http.sandbox.clock.advance(minutes=29, seconds=59)
        assert (await http.pushed(timed))["status"] == "Pending"
        http.sandbox.clock.advance(seconds=2)
        ended = await http.pushed(timed)
        http.sandbox.clock.advance(days=400)
        assert (await http.pushed(operation))["status"] == "Pending"
        http.sandbox.bring_online(http.connection(2))
        http.sandbox.clock.advance(hours=1)
        assert (await http.pushed(operation))["status"] == "Success"
        assert await http.pushed(timed) == ended
        total = (await http.get(f"{http.company}/data/invoices")).body["totalResults"]

    assert timed["timeoutInMinutes"] == ended["timeoutInMinutes"] == 30
    assert (ended["status"], ended["data"], total) == ("TimedOut", {}, 251)
    assert ended["completedOnUtc"] is not None


async def test_money_comes_back_digit_for_digit() -> None:
    """data is "the object as it appears in the platform": amounts are exact.

    "Platform processes synchronously": Success or Failed "returned directly".
    """
    line = b'{"unitAmount":12345678901234567.89,"quantity":1.10}'
    sent = b'{"customerRef":{"id":"c"},"issueDate":"2024-01-01","status":"Draft","lineItems":[%b]}'
    async with serving() as http:
        reply = await http.call("POST", f"{http.at(1)}/push/invoices", data=sent % line)
        failed = await http.post(f"{http.at(1)}/push/invoices", {})

    assert (reply.body["status"], failed.body["status"]) == ("Success", "Failed")
    assert failed.status == 200
    assert line.decode() in reply.text
    assert reply.body["data"]["lineItems"][0]["unitAmount"] == Decimal("12345678901234567.89")


async def test_pushes_are_listed_most_recent_first() -> None:
    """ "lists the most recent push operations"; "totalResults counts results after any filter"."""
    async with serving() as http:
        keys = [(await http.push(n % 3))["pushOperationKey"] for n in range(7)]
        await http.push(1, "accounts")
        path = f"{http.company}/push"
        body = (await http.get(path, pageSize=4)).body
        rest = (await http.call("GET", body["_links"]["next"]["href"])).body
        ordered = (await http.get(path, orderBy="-requestedOnUtc")).body
        oldest = (await http.get(path, orderBy="requestedOnUtc", pageSize=1)).body
        done = (await http.get(path, query="status=Success")).body
        both = (await http.get(path, query="status=Pending||dataType=chartOfAccounts")).body
        other = f"/companies/{http.sandbox.companies[1].id}/push"
        others, foreign = (await http.get(other)).body, await http.get(f"{other}/{keys[0]}")

    assert body["results"] + rest["results"] == ordered["results"]
    listed = [entry["pushOperationKey"] for entry in ordered["results"]]
    assert listed[1:] == keys[::-1]
    assert oldest["results"] == ordered["results"][-1:]
    assert (body["totalResults"], others["totalResults"], foreign.status) == (8, 0, 404)
    assert done["totalResults"] == 2
    assert {entry["status"] for entry in both["results"]} == {"Pending", "Failed"}
