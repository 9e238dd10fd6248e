"""Faults on command: when a rule applies, what it does, and that what means nothing is refused."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from inspect import signature
from typing import Any

import aiohttp
import pytest

from integration_sdk.sandbox import Answer, Call, Faults, Refused, Rule, Sandbox
from tests.support.loops import until
from tests.support.sandbox_support import (
    DELIVERY,
    Http,
    holding,
    push_under,
    serving,
)

pytestmark = pytest.mark.virtual_time

CALLS = {
    "get": ("GET", "/companies"),
    "items": ("GET", "{company}/data/items"),
    "invoices": ("GET", "{company}/data/invoices"),
    "list": ("GET", "{company}/push"),
    "list/": ("GET", "{company}/push/"),
    "push": ("POST", "{at}/push/invoices"),
}


async def told(http: Http, script: Sequence[str]) -> list[int]:
    """The statuses of the calls in *script*, 0 for a cut line; ``+30`` lets 30 seconds pass."""
    found = []
    for word in script:
        if word.startswith("+"):
            http.sandbox.clock.advance(seconds=float(word))
            continue
        method, path = CALLS[word]
        path = path.format(company=http.company, at=http.at())
        try:
            body = DELIVERY if method == "POST" else None
            found.append((await http.call(method, path, json=body)).status)
        except aiohttp.ServerDisconnectedError:
            found.append(0)
    return found


# The fault | what is called, and the seconds that pass | what it is told | its hits | pushes.
WHEN = """
times= counts the calls it applies to, skip= those it lets by first
status code=500 skip=1 times=2              | get get get get get  | 200 500 500 200 200 | 2 | 0
route= is a method in any case, a part of the path, or both; {x} is one segment
status code=500                             | get list push        | 500 500 500         | 3 | 0
status code=500 route=GET                   | get list push        | 500 500 200         | 2 | 1
status code=500 route='POST /push'          | get list push        | 200 200 500         | 1 | 0
status code=500 route='get /companies'      | items push           | 500 200             | 1 | 1
status code=500 route='GET  /companies'     | items                | 500                 | 1 | 0
status code=500 route='GET /companies/{id}/data/items' | items     | 500                 | 1 | 0
A window of the service's time; calls before it use up nothing
unavailable seconds=60                      | get +59 get +2 get   | 503 503 200         | 2 | 0
not_ready seconds=10 route=/invoices        | invoices items +11 invoices | 409 200 200  | 1 | 0
One address, however it is spelt; pushes are made and read by key all the same
no_push_list                                | list list/ push items | 404 404 200 200    | 2 | 1
no_push_list status=405                     | list push            | 405 200             | 1 | 1
A token bucket: burst at once, then per_second; hits and times= are refusals
rate_limit per_second=0.5                   | get get +2 get get   | 200 429 200 429     | 2 | 0
rate_limit per_second=0.1 burst=3 | get get get get +20.5 get get | 200 200 200 429 200 200 | 1 | 0
rate_limit per_second=0.01 burst=2 times=2  | get get get get get  | 200 200 429 429 200 | 2 | 0
The line
drop_connection times=1                     | push items           | 0 200               | 1 | 0
drop_connection times=1 before=false        | push items           | 0 200               | 1 | 1
lose_answer                                 | list push items      | 200 0 200           | 1 | 1
lose_answer route=/companies/ skip=1        | list push push       | 200 200 0           | 1 | 2
An error may hide that the work was done
status code=500 route=/push/                | push list            | 500 200             | 1 | 0
status code=500 route=/push/ processed=true | push                 | 500                 | 1 | 1
html_from_proxy times=1                     | push push            | 502 200             | 1 | 1
html_from_proxy status=504 times=1 processed=true | push push      | 504 200             | 1 | 2
A fault of pushes lets all else by, which does not use it up
fail_next_push message=no route=/companies/ | list push push       | 200 200 200         | 1 | 2
"""


def written(text: str) -> dict[str, Any]:
    """The fault in *text*, as it is posted: ``latency seconds=[1,3] route='GET /push'``."""
    name, *pairs = shlex.split(text)
    options = dict(pair.split("=", 1) for pair in pairs)
    return {"fault": name} | {key: read(value) for key, value in options.items()}


def read(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@pytest.mark.parametrize("row", [row for row in WHEN.splitlines() if "|" in row])
async def test_a_fault_applies_when_it_should(row: str) -> None:
    """Posted as JSON: what calls are answered, how often it applied, and which pushes there are."""
    fault, script, found, hits, recorded = (part.strip() for part in row.split("|"))
    async with serving() as http:
        added = await http.post("/_page/faults", [written(fault)])
        assert added.status == 200, added.text
        answered = await told(http, script.split())
        (rule,) = http.sandbox.faults

        assert answered == [int(status) for status in found.split()]
        assert answered == [request.status for request in http.sandbox.requests]
        assert (rule.hits, len(http.sandbox.pushes)) == (int(hits), int(recorded))


async def test_a_fault_of_ones_own() -> None:
    """add() takes any function around the rest of the call."""
    async with serving() as http:

        async def twice(call: Call, proceed: Any) -> Answer:
            answer = await proceed()
            if call.params:
                raise Refused(422, "twice with nothing")
            return Answer(answer.status, answer.body + b" ", {"X-Twice": call.method})

        rule: Rule = http.sandbox.faults.add(twice, route="GET /companies/")
        reply, refused = await http.get(http.company), await http.get(http.company, page=1)

    assert (reply.headers["X-Twice"], rule.hits) == ("GET", 2)
    assert refused.status == refused.body["statusCode"] == 422


# What means nothing

NO_ROUTE = [
    *("POST,PUT /push", "fetch it", "GET /companies?page=2", "GET https://x.example/companies"),
    *("DELETE /data/", "GET /company/", "/companies/{companyId}/items", "/companies.", None),
    *("GET /companies/{companyId}/{x}/{y}/items", "GET /options/invoices"),
]
REFUSED: Sequence[tuple[str, str, Sequence[Any], dict[str, Any]]] = [
    # the fault, the argument, values that it cannot have, what it is given beside
    ("unavailable", "skip", [-1, 1.5], {}),
    ("unavailable", "times", [0, True, 1.5, "2"], {}),
    ("unavailable", "probability", [1.1, -0.1, math.nan, "0.5"], {}),
    ("unavailable", "route", NO_ROUTE, {}),
    ("fail_next_push", "route", ["GET"], {"message": "no"}),
    ("notifications", "route", ["GET"], {}),
    ("list_lag", "route", ["/data/"], {"seconds": 1}),
    ("unavailable", "seconds", [-1, math.nan, "30"], {}),
    ("unavailable", "retry_after", [-1, math.inf, "1\r\nX: y"], {}),
    ("status", "code", [42, 103, 1000, "503"], {}),
    ("status", "headers", [{"Retry-After": 5}, {"X": "a\nb"}], {"code": 503}),
    ("latency", "seconds", [(2, 1), -1, (1, 2, 3), "1"], {}),
    ("rate_limit", "form", ["minutes"], {}),
    ("rate_limit", "per_second", [math.inf, 0, -1, math.nan], {}),
    ("concurrency_limit", "total", [None, 0], {}),
    ("notifications", "forge", ["rudely"], {}),
]


@pytest.mark.parametrize(("fault", "argument", "values", "beside"), REFUSED)
def test_a_fault_that_means_nothing_is_refused(
    fault: str, argument: str, values: Sequence[Any], beside: dict[str, Any]
) -> None:
    """What could never apply, or would let nothing by, is a mistake in the script: it is named."""
    faults = Sandbox(invoices=0).faults
    for value in values:
        with pytest.raises(ValueError, match=argument):
            getattr(faults, fault)(**beside, **{argument: value})

    assert list(faults) == []


def test_the_reference_names_every_fault_and_its_arguments() -> None:
    """As an editor does, by the signatures of the methods."""
    page = files("integration_sdk").joinpath("docs/reference/sandbox.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    with pytest.raises(ValueError, match="there is no fault 'latncy': give one of ") as error:
        Sandbox(invoices=0).faults.add_named("latncy")
    for name in str(error.value).partition("give one of ")[2].split(", "):
        (row,) = [each for each in rows if f"`{name}`" in each.split("|")[1]]
        parameters = set(signature(getattr(Faults, name)).parameters)
        scope = {"route", "skip", "times", "probability"}
        assert scope <= parameters
        assert parameters - scope - {"processed"} <= set(re.findall("`([a-z_]+)`", row))


async def test_rules_are_listed_and_ended() -> None:
    """As they were set, with their hits; remove() ends one, end_listed() those named."""
    async with serving() as http:
        faults = http.sandbox.faults
        rule = faults.status(500, route="^GET /companies$")
        faults.latency((0.0, 0.0), times=2)
        await told(http, ["get"])
        entries = faults.listed()
        faults.end_listed(json.dumps([entries[1] | {"hits": 7}]).encode())
        assert list(faults) == [rule]
        faults.remove(rule)
        after = await told(http, ["get"])
    assert entries[0] == {"fault": "status", "code": 500, "route": "^GET /companies$", "hits": 1}
    assert entries[1] == {"fault": "latency", "seconds": [0.0, 0.0], "times": 2, "hits": 1}
    assert repr(faults) == "Faults()"
    assert after == [200]


async def test_retry_after_takes_every_form() -> None:
    """Whole seconds rounded up, any text, or no header; of itself until there is a token."""
    options: list[dict[str, Any]] = [{"retry_after": 2.5}, {"retry_after": "soon"}, {}]
    options += [{"retry_after": 5, "form": "none"}]
    told = []
    for each in options:
        async with serving(dialect="published") as http:
            http.sandbox.faults.rate_limit(0.01, burst=1, **each)
            free, refused = [(await http.get("/companies")).headers for _ in range(2)]
        told.append(refused.get("Retry-After"))

    assert told == ["3", "soon", "100", None]
    # The throttle speaks of itself, not of the quota.
    assert (free["X-Rate-Limit-Limit"], free["X-Rate-Limit-Remaining"]) == ("1", "0")
    assert free.get("Retry-After") is None


# What they do


@pytest.mark.parametrize(
    ("limits", "passed"),
    [({"total": 2}, 2), ({"per_company": 2}, 4), ({"total": 3, "per_company": 2}, 3)],
)
async def test_concurrency_is_limited(limits: dict[str, Any], passed: int) -> None:
    """So many at once, in all, for each company, or both; a place freed is a place."""
    async with serving() as http:
        gate = asyncio.Event()
        http.sandbox.faults.add(holding(gate))
        rule = http.sandbox.faults.concurrency_limit(**limits)
        paths = [f"/companies/{company.id}" for company in http.sandbox.companies[:2]] * 4
        calls = [asyncio.create_task(http.get(path)) for path in paths]
        await until(lambda: http.sandbox.served == len(calls) - passed)
        gate.set()
        replies = await asyncio.gather(*calls)
        after = await told(http, ["get", "get"])

    assert Counter(reply.status for reply in replies)[200] == passed
    assert (rule.hits, after) == (8 - passed, [200, 200])


async def test_latency_comes_before_the_work_and_lateness_after() -> None:
    """latency() delays what is done, late_answer() only the answer; both end with the sandbox."""
    async with serving() as http:
        http.sandbox.faults.latency(3600, times=1, route="/push/")
        early = asyncio.create_task(http.push())
        await until(lambda: http.sandbox.most_in_flight == 1)
        nothing_done = not http.sandbox.pushes
        http.sandbox.faults.late_answer((3600, 3600), times=1, route="/push/")
        late = asyncio.create_task(http.push())
        await until(lambda: http.sandbox.pushes)
        await http.sandbox.stop()
        ends = await asyncio.gather(early, late, return_exceptions=True)

    assert (nothing_done, http.sandbox.served) == (True, 0)
    assert all(isinstance(end, aiohttp.ClientError) for end in ends)


async def test_an_answer_is_cut_at_a_byte() -> None:
    """truncate(n) sends n bytes of the body under the full Content-Length, errors included."""
    cuts = [(0, "/companies"), (100, "/nowhere"), (300_000, "{company}/data/invoices?pageSize=250")]
    async with serving() as http:
        for at, path in cuts:
            http.sandbox.faults.truncate(at, times=1)
            url = http.sandbox.base_url + path.format(company=http.company)
            async with http.session.get(url) as answer:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await answer.read()
                assert at < int(answer.headers["Content-Length"])
                assert answer.content.total_raw_bytes == at
            assert http.sandbox.requests[-1].status == answer.status


async def test_the_world_is_changed_for_a_call() -> None:
    """cap_page_size() shows in page and links; fail_next_push() fails one push, not the next."""
    async with serving(invoices=250) as http:
        http.sandbox.faults.cap_page_size(100)
        body = (await http.get(f"{http.company}/data/invoices", pageSize=200)).body
        small = (await http.get(f"{http.company}/data/invoices", pageSize=50)).body
        http.sandbox.faults.fail_next_push("amount must be positive", item="amount")
        operations = [await http.push(), await http.push()]
        http.sandbox.clock.advance(minutes=1)
        first, second = [await http.pushed(operation) for operation in operations]

    assert (body["pageSize"], len(body["results"]), small["pageSize"]) == (100, 100, 50)
    assert body["_links"]["next"]["href"].endswith("?pageSize=100&page=2")
    assert (operations[0]["status"], second["status"]) == ("Pending", "Success")
    (error,) = first["validation"]["errors"]
    assert (error["message"], error["itemId"]) == ("amount must be positive", "amount")


# The fault | what a push and its repetitions under one key are told | pushes recorded.
KEPT = """
status code=500 times=1                           | 500 500   | 0
status code=429 times=1                           | 429 200   | 1
status code=500 times=1 processed=true            | 500 500   | 1
What a proxy, a gateway or the line made of a push is not the service's answer
html_from_proxy times=1                           | 502 200 200 | 1
drop_connection times=1                           | 0 200     | 1
A kept answer is lost, refused and throttled on its way as any other
lose_answer times=2                               | 0 0 200   | 1
rate_limit per_second=0.001 burst=1               | 200 429   | 1
"""


@pytest.mark.parametrize("row", [row for row in KEPT.splitlines() if "|" in row])
async def test_what_an_idempotency_key_is_told_under_faults(row: str) -> None:
    """ "The answer is kept 90 minutes and replayed, 5xx included"; 429 is not."""
    fault, found, recorded = (part.strip() for part in row.split("|"))
    async with serving(dialect="published") as http:
        await http.post("/_page/faults", [written(fault)])
        told: list[tuple[int, str]] = []
        for _ in found.split():
            try:
                reply = await push_under(http, "k")
            except aiohttp.ClientError:
                told.append((0, ""))
            else:
                told.append((reply.status, reply.text))

        assert [status for status, _ in told] == [int(status) for status in found.split()]
        assert len(http.sandbox.pushes) == int(recorded)
    for status in (200, 500):
        assert len({text for each, text in told if each == status}) <= 1
