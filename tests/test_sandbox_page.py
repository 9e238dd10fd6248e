"""The sandbox's page: what it tells, what it does, and that nobody else can use it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from integration_sdk.sandbox._control import _is_local as is_local
from integration_sdk.sandbox._control import document
from tests.sandbox_support import DELIVERY, holding, press, serving, state

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


def switched_on(told: Any) -> set[str]:
    return {switch["name"] for switch in told["switches"] if switch["on"]}


# ---------------------------------------------------------------------- the page as it is served


async def test_anybody_may_look() -> None:
    """The page needs no key, passes no fault, and is neither counted nor remembered."""
    async with serving(key="wrong") as http:
        http.sandbox.faults.unavailable()
        page = await http.get("/")
        looked = [(await http.get(f"/_page/{what}")).status for what in ("about", "state")]

        assert page.status == 200
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert looked == [200, 200]
        assert (http.sandbox.served, http.sandbox.requests) == (0, [])
        assert (await http.get("/companies")).status == 503


def test_it_loads_nothing_from_anywhere() -> None:
    """The page is one file: no address in it leads elsewhere, and its policy allows none."""
    page = document()
    html = page.body.decode()
    policy = page.headers["Content-Security-Policy"]

    sources = [v for _, attrs in Parts(html).tags for k, v in attrs.items() if k in {"src", "href"}]
    assert sources == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", html)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[\w+/]{43}='", policy)) == 2


def test_every_control_has_a_name() -> None:
    """Each control in the file has a label, each button a text, each section a heading."""
    page = document()
    html = page.body.decode()
    tags = Parts(html).tags
    labelled = {attrs.get("for") for tag, attrs in tags if tag == "label"}

    assert {attrs["id"] for tag, attrs in tags if tag in {"select", "input"}} <= labelled
    assert all(attrs.get("aria-labelledby") for tag, attrs in tags if tag == "section")
    assert not re.search(r"<button[^>]*>\s*</button>", html)
    assert ":focus-visible" in html
    assert "light-dark(" in html


# ---------------------------------------------------------------------- what it tells and does


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_what_it_needs_for_its_form(dialect: str) -> None:
    """about: key, companies with connections, what each platform takes, where options are."""
    async with serving(dialect=dialect) as http:
        about = (await http.get("/_page/about")).body
        company, connection = http.first, http.connection(1)
        path = about["options"].format(
            companyId=company.id, connectionId=connection.id, dataType="invoices"
        )
        options = (await http.get(path)).body

    assert about["key"] == http.sandbox.api_key
    assert [c["name"] for c in about["companies"]] == [c.name for c in http.sandbox.companies]
    told = about["companies"][0]["connections"][2]
    assert (told["platform"], told["pace"], told["online"]) == ("Deskledger", "is offline", False)
    assert {"name": "chartOfAccounts", "path": "accounts", "label": "Account"} in about[
        "dataTypes"
    ]["Swiftbooks"]
    assert "journalEntries" not in {kind["name"] for kind in about["dataTypes"]["Swiftbooks"]}
    assert options["displayName"] == "Invoice"


async def test_recent_pushes_with_their_states() -> None:
    """state: the latest pushes first, as they stand now, with the reasons of a failure."""
    async with serving(push_seconds=(60, 60)) as http:
        await http.push()
        await http.post(f"{http.at(1)}/push/invoices", {**DELIVERY, "status": "Odd"})
        before = (await state(http))["pushes"]
        http.sandbox.clock.advance(minutes=2)
        after = (await state(http))["pushes"]

    assert [push["status"] for push in before] == ["Failed", "Pending"]
    assert [push["status"] for push in after] == ["Failed", "Success"]
    assert before[0]["problems"] == ["status: must be one of: Draft, Submitted"]
    assert (after[1]["company"], after[1]["platform"]) == (http.first.name, "Ledgerline")
    assert after[1]["label"] == DELIVERY["invoiceNumber"]
    assert after[1]["seconds"] == pytest.approx(60, abs=1e-3)


async def test_fifty_pushes_are_shown() -> None:
    """Of many pushes the page shows the latest and says how many there are."""
    async with serving() as http:
        for _ in range(60):
            last = http.sandbox.push(http.connection(1), "invoices", DELIVERY)
        told = await state(http)

    assert (len(told["pushes"]), told["recorded"]) == (50, 60)
    assert told["pushes"][0]["key"] == last.key


async def test_faults_at_a_switch() -> None:
    """Each switch turns its fault on and off, and shows when it is over by itself."""
    async with serving(companies=1) as http:
        on = (await press(http, "fault", {"name": "unavailable", "on": True})).body
        during = (await http.get("/companies")).status
        off = (await press(http, "fault", {"name": "unavailable", "on": False})).body
        then = (await http.get("/companies")).status
        await press(http, "fault", {"name": "unavailable", "on": True})
        http.sandbox.clock.advance(seconds=30)
        over = await state(http)

        assert (switched_on(on), during, switched_on(off), then) == (
            {"unavailable"},
            503,
            set(),
            200,
        )
        assert (switched_on(over), (await http.get("/companies")).status) == (set(), 200)


async def test_the_next_push_fails_once() -> None:
    """ "Fail next push" fails one push, says so in its state, and is off again."""
    async with serving() as http:
        await press(http, "fault", {"name": "fail_next_push", "on": True})
        first, second = await http.push(1), await http.push(1)
        told = await state(http)

    assert (first["status"], second["status"]) == ("Failed", "Success")
    assert switched_on(told) == set()
    assert told["pushes"][1]["problems"] == ["The platform refuses this push, as you asked"]


async def test_all_faults_are_cleared() -> None:
    """ "Clear all" ends the page's faults and those a program has set, which it lists."""
    async with serving() as http:
        http.sandbox.faults.latency(0, route="GET")
        http.sandbox.faults.add(holding(asyncio.Event()), route="/push/", times=1)
        on = (await press(http, "fault", {"name": "rate_limit", "on": True})).body
        await http.call("DELETE", "/_page/faults")
        cleared = await state(http)

    set_by_a_program = {"name": "latency", "arguments": "seconds=0.0, route='GET'", "hits": 0}
    assert (switched_on(on), on["faults"][0]) == ({"rate_limit"}, set_by_a_program)
    assert [fault["name"] for fault in on["faults"]] == ["latency", "add"]
    assert (switched_on(cleared), cleared["faults"]) == (set(), [])
    assert list(http.sandbox.faults) == []


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


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("fault", {"name": "earthquake", "on": True}, 400),
        ("fault", {"name": ["unavailable"], "on": True}, 400),
        ("fault", [], 400),
        ("fault", {"name": "latency"}, 400),
        ("fault", {"name": "latency", "on": "no"}, 400),
        ("advance", {"seconds": -1}, 400),
        ("advance", {"seconds": "60"}, 400),
        ("advance", {"seconds": True}, 400),
        ("online", {"companyId": "x", "connectionId": "y"}, 404),
        ("elsewhere", {}, 404),
    ],
)
async def test_odd_commands_are_refused(what: str, body: object, status: int) -> None:
    """What the page cannot mean is refused with a reason and changes nothing."""
    async with serving() as http:
        reply = await press(http, what, body)

        assert (reply.status, reply.body["statusCode"]) == (status, status)
        assert list(http.sandbox.faults) == []


# ---------------------------------------------------------------------- who may use it


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("[::1]:8080", True),
        ("127.8.8.8", True),
        ("192.0.2.7:8080", True),  # the address it is bound to
        ("192.0.2.8", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("evil.example@127.0.0.1", True),  # a browser sends no such thing; the host is ours
        ("[::1", False),
        ("", False),
    ],
)
def test_only_an_address_of_this_machine(host: str, local: bool) -> None:
    """A name that somebody else made lead here (DNS rebinding) is not ours."""
    assert is_local(host, "192.0.2.7") is local


async def test_other_sites_read_nothing() -> None:
    """Under another host name there is no page, and no answer may be read across origins."""
    async with serving(key="wrong") as http:
        paths = ["/", "/_page/about", "/_page/state", "/_page/faults"]
        other = [await http.call("GET", path, headers={"Host": "evil.example"}) for path in paths]
        ours = [await http.call("GET", p, headers={"Origin": "http://evil.example"}) for p in paths]
        ours.append(await http.call("OPTIONS", "/_page/fault"))

    assert [reply.status for reply in other] == [403] * 4
    assert not any(http.sandbox.api_key in reply.text for reply in other)
    assert not any(name.lower().startswith("access-control") for r in ours for name in r.headers)
    assert all("frame-ancestors 'none'" in r.headers["Content-Security-Policy"] for r in ours[:1])


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Host": "evil.example"},
    ],
)
async def test_other_sites_press_nothing(headers: dict[str, str]) -> None:
    """A command that another site's script or form can send has no effect."""
    async with serving(key="wrong") as http:
        body = json.dumps({"name": "latency", "on": True})
        headers = {"Content-Type": "application/json", **headers}
        reply = await http.call("POST", "/_page/fault", data=body, headers=headers)
        listed = await http.call("POST", "/_page/faults", data=LATENCY, headers=headers)

        assert {reply.status, listed.status} <= {403, 415}
        assert list(http.sandbox.faults) == []


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
async def test_other_sites_end_no_fault(headers: dict[str, str]) -> None:
    """Nor does another site end the faults that a test relies on."""
    async with serving(key="wrong") as http:
        rule = http.sandbox.faults.latency(0)

        assert (await http.call("DELETE", "/_page/faults", headers=headers)).status == 403
        assert list(http.sandbox.faults) == [rule]


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
        ended = await http.call("DELETE", "/_page/faults")

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
        reply = await http.post("/_page/faults", [{"fault": "latency", "seconds": 0}, {"fault": 1}])

        assert reply.status == 400
        assert reply.errors[0]["message"].startswith("fault 2: there is no fault 1: give one of")
        assert list(http.sandbox.faults) == []


async def test_on_this_machine_no_key_is_needed() -> None:
    """A line of curl without a key adds and ends faults."""
    async with serving(key="wrong") as http:
        headers = {"Content-Type": "application/json"}
        added = await http.call("POST", "/_page/faults", data=LATENCY, headers=headers)
        ended = await http.call("DELETE", "/_page/faults")

    assert (added.status, ended.status, ended.body) == (200, 200, [])


@pytest.mark.parametrize(("key", "status"), [(None, 200), ("wrong", 403)])
async def test_the_key_opens_the_page_s_calls_from_anywhere(key: str | None, status: int) -> None:
    """Another container calls the sandbox by a name; with the key it may set faults."""
    async with serving(**({"key": key} if key else {})) as http:
        headers = {"Host": "sandbox:8080"}
        reply = await http.call("POST", "/_page/faults", data=LATENCY, headers=headers)

        assert reply.status == status
        assert len(list(http.sandbox.faults)) == (status == 200)


async def test_a_method_that_an_address_does_not_have_is_named() -> None:
    """Whoever puts faults is told that they are posted, not that the address is wrong."""
    async with serving() as http:
        put = await http.call("PUT", "/_page/faults", json=[])
        gone = await http.call("DELETE", "/_page/fault")

    assert (put.status, put.headers["Allow"]) == (405, "DELETE, GET, POST")
    assert (gone.status, gone.headers["Allow"]) == (405, "POST")
