"""The sandbox's page as somebody uses it: by keyboard in a browser, or by hand without one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.browser import CHROMIUM, Tab, browsing
from tests.support.sandbox_support import Http, press, serving, state, until

PAYMENT = {
    "customerRef": {"id": "Acme"},
    "accountRef": {"id": "1200"},
    "totalAmount": 12345678901234567891,
    "date": "2024-03-01T00:00:00Z",
    "lines": [{"amount": 12.5, "links": [{"type": "CreditNote", "id": "CN-1", "amount": 12.5}]}],
}
TYPED = {
    "customerRef-id": "Acme",
    "accountRef-id": "1200",
    "totalAmount": "12345678901234567891",
    "lines-0-amount": "12.5",
    "lines-0-links-0-id": "CN-1",
    "lines-0-links-0-amount": "12.5",
}
"""What somebody types for `PAYMENT`, in the order of the form; two parts are chosen or set."""
LATENCY: list[dict[str, Any]] = [{"fault": "latency", "seconds": [1, 3]}]
CHOOSE = """(select => {
    const found = [...select.options].find(option => option.text === %s);
    select.value = found.value;
    for (const kind of ["input", "change"])
        select.dispatchEvent(new Event(kind, { bubbles: true }));
    return found.value;
})(document.getElementById(%s))"""


class Hand:
    """Uses the page's addresses as its script does, where there is no browser."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def push_a_payment(self) -> str:
        about = (await self._http.get("/_page/about")).body
        kind = next(k for k in about["dataTypes"]["Swiftbooks"] if k["label"] == "Payment")
        company = about["companies"][0]
        lane = {"companyId": company["id"], "connectionId": company["connections"][1]["id"]}
        options = about["options"].format(**lane, dataType=kind["name"])
        described = (await self._http.get(options)).body
        link = described["properties"]["lines"]["properties"]["links"]["properties"]["type"]
        choices = {option["displayName"]: option["value"] for option in link["options"]}
        assert choices["Credit note"] == "CreditNote"
        path = "/companies/{companyId}/connections/{connectionId}/push/".format(**lane)
        await self._http.post(path + kind["path"], PAYMENT)
        (push,) = (await state(self._http))["pushes"]
        return f"{push['status']} {push['change']} {push['dataType']}"

    async def turn_on_latency(self) -> None:
        await press(self._http, "faults", LATENCY)

    async def turn_off_latency(self) -> None:
        await self._http.call("DELETE", "/_page/faults", json=LATENCY)


class Keyboard:
    """Uses the page in a browser, by keyboard alone but for what is chosen from lists."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    async def push_a_payment(self) -> str:
        await self._choose_the_form()
        await self._see_what_is_required()
        await self._fill_in()
        await self._submit()
        said = await self._tab.until(
            "document.querySelector('.push .Success') && document.querySelector('.push').innerText"
        )
        return " ".join(said.split("\n")[:2])

    async def _choose_the_form(self) -> None:
        shown = "document.getElementById('fields').ariaBusy === 'false'"
        await self._tab.until(shown)
        for text, box in (("Swiftbooks", "connection"), ("Payment", "type")):
            await self._tab.run(CHOOSE % (json.dumps(text), json.dumps(box)))
            await self._tab.until(shown)

    async def _see_what_is_required(self) -> None:
        """The browser holds back an incomplete form, and goes to what is missing."""
        await self._submit()
        assert await self._tab.run("document.activeElement.id") == "field-customerRef-id"
        assert not await self._is_required("lines-0-amount")

    async def _fill_in(self) -> None:
        tab = self._tab
        await tab.run("document.getElementById('field-date').value = '2024-03-01'")
        for name, text in TYPED.items():
            if name in {"lines-0-amount", "lines-0-links-0-id"}:
                await tab.tab_to("e.matches('summary') && !e.parentElement.open")
                await tab.press("Enter")
            await tab.tab_to(f"e.id === 'field-{name}'")
            await tab.type(text)
        assert await self._is_required("lines-0-links-0-type")
        kind = await tab.run(CHOOSE % ('"Credit note"', '"field-lines-0-links-0-type"'))
        assert kind == "CreditNote"

    async def _submit(self) -> None:
        await self._tab.tab_to("e.id === 'submit'")
        outline = await self._tab.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        await self._tab.press("Enter")

    async def _is_required(self, name: str) -> Any:
        return await self._tab.run(f"document.getElementById('field-{name}').required")

    async def turn_on_latency(self) -> None:
        await self._tab.tab_to("e.id === 'fault-latency'")
        await self._tab.press(" ")
        await self._tab.until("document.getElementById('fault-latency').checked")
        listed = "document.getElementById('faults').innerText"
        assert (
            await self._tab.until(listed) == "lose_answer(times=1) set by a program, met by 0 calls"
        )

    async def turn_off_latency(self) -> None:
        await self._tab.press(" ")
        assert self._tab.complaints == []


@asynccontextmanager
async def by_hand(http: Http) -> AsyncIterator[Hand]:
    yield Hand(http)


@asynccontextmanager
async def by_keyboard(http: Http) -> AsyncIterator[Keyboard]:
    async with browsing(http.sandbox.base_url + "/") as tab:
        yield Keyboard(tab)


@pytest.mark.parametrize("using", [by_hand, *([by_keyboard] if CHROMIUM else [])])
async def test_a_record_is_pushed_from_the_page(using: Any) -> None:
    """The form shows displayName and submits value; the push's state appears; faults work."""
    async with serving(companies=1) as http, using(http) as user:
        shown = await user.push_a_payment()
        (push,) = http.sandbox.pushes
        theirs = http.sandbox.faults.lose_answer(times=1)
        await user.turn_on_latency()
        await until(lambda: len(list(http.sandbox.faults)) == 2)
        switched = http.sandbox.faults.listed()[1]
        await user.turn_off_latency()
        await until(lambda: list(http.sandbox.faults) == [theirs])

    assert shown == "Success Create payments"
    assert switched == {**LATENCY[0], "hits": switched["hits"]}
    assert push.record == PAYMENT
