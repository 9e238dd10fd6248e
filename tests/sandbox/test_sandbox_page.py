"""The page: what it asks of the sandbox, and how it works in a browser."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.browser import CHROMIUM, browsing
from tests.support.loops import until
from tests.support.sandbox_support import serving


async def test_a_running_sandbox_is_controlled_with_its_key() -> None:
    """Faults and the clock: with the key alone, uncounted, and past every fault.

    Anybody may load the page itself: the key comes from behind the # of its address.
    """
    async with serving() as http:
        http.sandbox.faults.unavailable()
        before = http.sandbox.clock.now()
        added = await http.post("/_page/faults", [{"fault": "latency", "seconds": [1, 3]}])
        await http.post("/_page/advance", {"seconds": 3600})
        ended = await http.call("DELETE", "/_page/faults")
        credential = base64.b64encode(b"wrong").decode()
        headers = {"Authorization": f"Basic {credential}"}
        refused = await http.call("POST", "/_page/faults", json=[], headers=headers)
        page = await http.call("GET", "/", headers=headers)

        assert 3600 <= http.sandbox.clock.now() - before < 3700
        assert (http.sandbox.served, http.sandbox.requests) == (0, [])
    assert added.body[1] == {"fault": "latency", "seconds": [1, 3], "hits": 0}
    assert (ended.body, refused.status) == ([], 401)
    assert http.sandbox.api_key not in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def field(name: str) -> str:
    return f"document.querySelector('[name={name}]')"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_people_can_push_switch_faults_and_turn_the_clock() -> None:
    """A form from the options, its push in the list, a fault, an hour."""
    books = Sandbox(companies=2, invoices=10, unlinked=1)
    async with books as sandbox, browsing(f"{sandbox.base_url}/#{sandbox.api_key}") as tab:
        await tab.until(f"{field('status')}?.options.length === 3")
        described: Any = await tab.run(f"{field('status')}.labels[0].textContent")
        assert described.startswith("Status *")
        await tab.run(f"{field('invoiceNumber')}.value = 'INV-77'")
        for button in ("example", "submit"):
            await tab.run(f"document.getElementById('{button}').click()")
        await tab.until("document.querySelector('.push .Success') !== null")
        (pushed,) = sandbox.pushes
        assert pushed.record["invoiceNumber"] == "INV-77"
        assert pushed.record["lineItems"][0] == {"unitAmount": 1, "quantity": 1}
        assert "INV-77" in await tab.run("document.getElementById('pushes').innerText")

        await tab.run("document.getElementById('switch-3').click()")
        await until(lambda: list(sandbox.faults))
        assert [rule.plain()["fault"] for rule in sandbox.faults] == ["fail_next_push"]
        sandbox.faults.latency(0.01)
        await tab.until("document.getElementById('faults').innerText.includes('latency')")
        before = sandbox.clock.now()
        await tab.run("document.querySelector('[data-advance=\"3600\"]').click()")
        await until(lambda: sandbox.clock.now() - before >= 3600)

        company = sandbox.companies[1].id
        change = "const c = document.getElementById('company');"
        await tab.run(f"{{{change} c.value = '{company}'; c.onchange();}}")
        await tab.until("document.getElementById('result').innerText.includes('no connection')")
        assert tab.complaints == []
