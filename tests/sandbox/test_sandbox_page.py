"""The sandbox's own addresses: its page, faults from any language, and who may use them.

Two attacks must fail at once: another machine that says ``Host: localhost`` where the sandbox
listens on all addresses, and a site whose name was made to lead here (DNS rebinding), which the
browser of somebody at this machine opens.
"""

from __future__ import annotations

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from html.parser import HTMLParser
from itertools import product
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk.sandbox import Sandbox
from integration_sdk.sandbox._http import is_same_machine
from tests.support.sandbox_support import DELIVERY, holding, press, serving, state

pytestmark = pytest.mark.virtual_time

LATENCY = '[{"fault": "latency", "seconds": 0}]'


class Parts(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


# ---------------------------------------------------------------------- the page as it is served


async def test_anybody_here_may_look() -> None:
    """The page needs no key, passes no fault, and is neither counted nor remembered."""
    async with serving(key="wrong") as http:
        http.sandbox.faults.unavailable()
        page, head = await http.get("/"), await http.call("HEAD", "/")
        looked = [(await http.get(f"/_page/{what}")).status for what in ("about", "state")]

        assert (page.status, head.status, head.text, looked) == (200, 200, "", [200, 200])
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert head.headers["Content-Length"] == page.headers["Content-Length"]
        assert (http.sandbox.served, http.sandbox.requests) == (0, [])
        assert (await http.get("/companies")).status == 503


async def test_it_is_one_file_whose_controls_have_names() -> None:
    """No address in it leads elsewhere and its policy allows none; each control has a label."""
    async with serving() as http:
        page = await http.get("/")
    html, policy = page.text, page.headers["Content-Security-Policy"]
    tags = Parts(html).tags
    labelled = {attrs.get("for") for tag, attrs in tags if tag == "label"}

    assert [v for _, attrs in tags for k, v in attrs.items() if k in {"src", "href"}] == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", html)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[\w+/]{43}='", policy)) == 2
    assert {attrs["id"] for tag, attrs in tags if tag in {"select", "input"}} <= labelled
    assert all(attrs.get("aria-labelledby") for tag, attrs in tags if tag == "section")
    assert not re.search(r"<button[^>]*>\s*</button>", html)
    assert ":focus-visible" in html
    assert "light-dark(" in html


# ---------------------------------------------------------------------- what it tells and does


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_what_it_needs_for_its_form(dialect: str) -> None:
    """about: key, companies with connections, what each platform takes, where options are."""
    async with serving(dialect=dialect, api_key="schlüssel-鍵") as http:
        about = (await http.get("/_page/about")).body
        lane = {"companyId": http.first.id, "connectionId": http.connection(1).id}
        path = about["options"].format(**lane, dataType="invoices")
        # No browser can encode such a key by itself.
        headers = {"Authorization": f"Basic {about['credential']}"}
        options = (await http.call("GET", path, headers=headers)).body

    assert about["key"] == http.sandbox.api_key
    assert [c["name"] for c in about["companies"]] == [c.name for c in http.sandbox.companies]
    told = about["companies"][0]["connections"][2]
    assert (told["platform"], told["pace"], told["online"]) == ("Deskledger", "is offline", False)
    kinds = about["dataTypes"]["Swiftbooks"]
    assert {"name": "chartOfAccounts", "path": "accounts", "label": "Account"} in kinds
    assert "journalEntries" not in {kind["name"] for kind in kinds}
    assert options["displayName"] == "Invoice"


async def test_recent_pushes_with_their_states() -> None:
    """state: the latest pushes first, by number or reference, with the reasons of a failure."""
    async with serving(push_seconds=(60, 60)) as http:
        await http.push()
        await http.post(f"{http.at(1)}/push/invoices", {**DELIVERY, "status": "Odd"})
        before = (await state(http))["pushes"]
        http.sandbox.clock.advance(minutes=2)
        after = (await state(http))["pushes"]
        for _ in range(58):
            last = http.sandbox.push(http.connection(1), "bills", {"reference": "B-7"})
        full = await state(http)

    assert [push["status"] for push in before] == ["Failed", "Pending"]
    assert [push["status"] for push in after] == ["Failed", "Success"]
    assert before[0]["problems"] == ["status: must be one of: Draft, Submitted"]
    assert (after[1]["company"], after[1]["platform"]) == (http.first.name, "Ledgerline")
    assert after[1]["label"] == DELIVERY["invoiceNumber"]
    assert after[1]["seconds"] == pytest.approx(60, abs=1e-3)
    assert (len(full["pushes"]), full["recorded"]) == (50, 60)
    assert (full["pushes"][0]["key"], full["pushes"][0]["label"]) == (last.key, "B-7")


async def test_faults_at_a_switch() -> None:
    """A switch posts a fault and deletes it; what is over, or spent, is not told any more."""
    down, fails = {"fault": "unavailable", "seconds": 30}, {"fault": "fail_next_push"}
    async with serving(companies=1) as http:
        others = http.sandbox.faults.add(holding(asyncio.Event()), route="/push/", skip=9)
        await http.post("/_page/faults", [down])
        on, during = await state(http), (await http.get("/companies")).status
        await http.call("DELETE", "/_page/faults", json=[down | {"hits": 7}])
        off, then = await state(http), (await http.get("/companies")).status
        await http.post("/_page/faults", [down, fails | {"message": "as you asked"}])
        http.sandbox.clock.advance(seconds=30)
        over = await state(http)
        first, second = await http.push(1), await http.push(1)
        spent = await state(http)

        assert (on["faults"][1:], during) == ([down | {"hits": 0}], 503)
        assert (off["faults"], then) == (on["faults"][:1], 200)
        assert [told["faults"][1:] for told in (over, spent)] == [
            [fails | {"message": "as you asked", "hits": 0}],
            [],
        ]
        assert (first["status"], second["status"]) == ("Failed", "Success")
        assert spent["pushes"][1]["problems"] == ["as you asked"]
        assert others in list(http.sandbox.faults)


async def test_time_and_platforms_at_a_button() -> None:
    """Its clock goes ahead, and an offline platform comes back and works off what waits."""
    async with serving(push_seconds=(600, 600)) as http:
        await http.push(2)
        ids = {"companyId": http.first.id, "connectionId": http.connection(2).id}
        about = (await press(http, "online", ids)).body
        waiting = (await state(http))["pushes"][0]["status"]
        done = (await press(http, "advance", {"seconds": 3600})).body["pushes"][0]["status"]

    assert about["companies"][0]["connections"][2]["online"] is True
    assert (waiting, done) == ("Pending", "Success")


# ---------------------------------------------------------------------- faults from any language


async def test_faults_of_a_running_sandbox() -> None:
    """A program posts what a file of faults holds, sees how often each applied, and ends them."""
    listed: list[dict[str, Any]] = [
        {"fault": "status", "code": 503, "route": "GET", "times": 1},
        {"fault": "fail_next_push", "message": "no"},
    ]
    async with serving() as http:
        added = await http.post("/_page/faults", listed)
        statuses = [(await http.get("/companies")).status for _ in range(2)]
        told = (await http.get("/_page/faults")).body
        put = await http.call("PUT", "/_page/faults")
        ended = await http.call("DELETE", "/_page/faults")

        assert put.headers["Allow"] == "DELETE, GET, POST"
        assert (added.status, statuses) == (200, [503, 200])
        assert told == [{**listed[0], "hits": 1}, {**listed[1], "hits": 0}]
        assert (ended.status, ended.body, list(http.sandbox.faults)) == (200, [], [])


async def test_faults_of_a_program_are_listed_as_a_file_would_name_them() -> None:
    """Arguments without names get them, and what no file can hold is described."""
    async with serving() as http:
        http.sandbox.faults.rate_limit(5, burst=2)
        http.sandbox.faults.no_push_list(route=re.compile("push"))
        http.sandbox.faults.latency(lambda: 0)
        told = (await http.get("/_page/faults")).body

    assert told[0] == {"fault": "rate_limit", "per_second": 5, "burst": 2, "hits": 0}
    assert told[1] == {"fault": "no_push_list", "route": "re.compile('push')", "hits": 0}
    assert told[2]["seconds"].startswith("<function")


async def test_a_list_with_a_wrong_fault_changes_nothing() -> None:
    """Of a list of which one is refused none is added, and the answer names it."""
    async with serving() as http:
        kept = http.sandbox.faults.latency(0)
        reply = await http.post("/_page/faults", [{"fault": "latency", "seconds": 0}, {"fault": 1}])

        headers = {"Content-Type": "application/json"}
        odd = [b"{}", b"[", b"\xff", b"[1]", b"[" * 9_000]
        for body in odd:
            broken = await http.call("POST", "/_page/faults", data=body, headers=headers)
            assert broken.status == 400
            assert broken.errors[0]["message"].startswith("faults are a JSON list such as [{")

        misspelt = await http.post("/_page/faults", [{"fault": "latency", "secs": 0}])

        assert (reply.status, misspelt.status) == (400, 400)
        assert reply.errors[0]["message"].startswith("fault 2: there is no fault 1: give one of")
        assert misspelt.errors[0]["message"].startswith("fault 1: secs is no argument of latency")
        assert list(http.sandbox.faults) == [kept]


# ---------------------------------------------------------------------- who may use it


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        # a line of curl at this machine needs no key; from elsewhere, by a name, it does
        ("wrong", {}, 200),
        (None, {"Host": "sandbox:8080"}, 200),
        ("wrong", {"Host": "sandbox:8080"}, 403),
        # a command that another site's script or form can send has no effect
        ("wrong", {"Origin": "http://evil.example"}, 403),
        ("wrong", {"Origin": "http://127.0.0.1:1"}, 403),
        ("wrong", {"Origin": "null"}, 403),
        ("wrong", {"Host": "evil.example"}, 403),
        ("wrong", {"Content-Type": "text/plain"}, 415),
        ("wrong", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_only_who_may_sets_and_ends_faults(
    key: str | None, headers: dict[str, str], status: int
) -> None:
    """The key opens all from anywhere; without it only this machine's own page and programs."""
    async with serving(**({"key": key} if key else {})) as http:
        headers = {"Content-Type": "application/json", **headers}
        told = await http.call("POST", "/_page/faults", data=LATENCY, headers=headers)
        assert told.status == status
        assert len(list(http.sandbox.faults)) == (status == 200)
        rule = http.sandbox.faults.latency(0)
        ended = await http.call("DELETE", "/_page/faults", headers=headers)
        # A form cannot send DELETE, so that its Content-Type says nothing.
        assert (ended.status == 200) == (status != 403)
        assert (rule in list(http.sandbox.faults)) == (status == 403)


async def test_other_sites_read_nothing() -> None:
    """Under another host name there is no page, and no answer may be read across origins."""
    async with serving(key="wrong") as http:
        paths = ["/", "/_page/about", "/_page/state", "/_page/faults"]
        other = [await http.call("GET", path, headers={"Host": "evil.example"}) for path in paths]
        ours = [await http.call("GET", p, headers={"Origin": "http://evil.example"}) for p in paths]
        ours.append(await http.call("OPTIONS", "/_page/faults"))

    assert [reply.status for reply in other] == [403] * 4
    assert not any(http.sandbox.api_key in reply.text for reply in other)
    assert not any(name.lower().startswith("access-control") for r in ours for name in r.headers)
    assert "frame-ancestors 'none'" in ours[0].headers["Content-Security-Policy"]


HOSTS = {
    **dict.fromkeys(["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080"], True),
    **dict.fromkeys(["127.8.8.8", "0.0.0.0:8080"], True),  # the latter is bound to
    "evil.example@127.0.0.1": True,  # a browser sends no such thing; the host is ours
    **dict.fromkeys(["192.0.2.8", "evil.example", "localhost.evil.example", "[::1", ""], False),
    "127.0.0.1.evil.example:8080": False,
}
CALLS = [
    *(("GET", path) for path in ("/", "/_page/about", "/_page/state", "/_page/faults")),
    *(("POST", "/_page/faults"), ("DELETE", "/_page/faults")),
]


def outer_address() -> str | None:
    """An address of this machine by which others reach it, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.connect(("192.0.2.1", 9))  # sends nothing
        return str(line.getsockname()[0])
    return None


# A call from there to the loopback address looks like another machine's.
@pytest.mark.parametrize("peer", [each for each in ("127.0.0.1", outer_address()) if each])
async def test_only_who_is_here_and_asks_for_here_is_answered(peer: str) -> None:
    """The peer's address decides, and the Host header may still refuse; the key opens all."""
    async with serving(host="0.0.0.0", companies=1, invoices=1) as http:
        port, key = http.sandbox.base_url.rpartition(":")[2], http.sandbox.api_key
        credential = {"Authorization": f"Basic {b64encode(key.encode()).decode()}"}
        line = aiohttp.TCPConnector(local_addr=(peer, 0), limit=1)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=line) as caller:
            for host, (method, path), keyed in product(HOSTS, CALLS, (credential, {})):
                http.sandbox.faults.clear()
                headers = {"Content-Type": "application/json", "Host": host, **keyed}
                body = LATENCY if method == "POST" else None
                async with caller.request(method, path, data=body, headers=headers) as told:
                    shown = await told.text()
                allowed = bool(keyed) or (peer == "127.0.0.1" and HOSTS[host])

                assert told.status == (200 if allowed else 403), (host, path)
                assert len(list(http.sandbox.faults)) == (method == "POST" and allowed)
                assert allowed or key not in shown


@pytest.mark.parametrize(
    ("peer", "here", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.8", "192.0.2.7", False),
        ("172.17.0.1", "172.17.0.2", False),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("fe80::2%eth0", "fe80::1%eth0", False),
        ("::ffff:192.0.2.8", "::ffff:192.0.2.7", False),
        (None, None, False),
        ("", "", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_a_peer_is_of_this_machine_by_its_address(
    peer: str | None, here: str | None, same: bool
) -> None:
    """A loopback address cannot come from elsewhere, nor can the address that was called."""
    assert is_same_machine(peer, here) is same


@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_another_address_is_another_machine(peer: object, here: object) -> None:
    """Unless it is of the loopback network."""
    ours = str(peer).startswith("127.") or peer == here

    assert is_same_machine(str(peer), str(here)) == ours
    assert is_same_machine(f"::ffff:{peer}", f"::ffff:{here}") == ours


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_the_page_opens_at_this_machine(host: str) -> None:
    """Whether the sandbox listens on the loopback address or on all."""
    async with serving(key="wrong", host=host, invoices=1) as http:
        port = http.sandbox.base_url.rpartition(":")[2]
        local = await http.call("GET", "/_page/about", headers={"Host": f"localhost:{port}"})

    assert (local.status, local.body["key"]) == (200, Sandbox().api_key)
