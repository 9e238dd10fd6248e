"""Faults on command, when they apply and what they refuse."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from integration_sdk.sandbox import Faults, Rule, Sandbox
from tests.sandbox_support import DELIVERY, holding, serving, statuses, until

pytestmark = pytest.mark.virtual_time

# ---------------------------------------------------------------------- when a rule applies


async def test_a_rule_is_spent_after_its_times() -> None:
    """times= counts the calls it applies to, skip= those it lets by first."""
    async with serving() as http:
        rule = http.sandbox.faults.status(500, skip=1, times=2)

        assert await statuses(http, 5) == [200, 500, 500, 200, 200]
    assert rule.hits == 2


@pytest.mark.parametrize(
    ("route", "hit"),
    [
        ("", {"GET /companies", "GET push", "POST push"}),
        ("GET", {"GET /companies", "GET push"}),
        ("/push", {"GET push", "POST push"}),
        ("POST /push", {"POST push"}),
        ("/companies/", {"GET push", "POST push"}),
        (re.compile(r"/push$"), {"GET push"}),
        (re.compile(r"^GET /companies$"), {"GET /companies"}),
    ],
)
async def test_a_rule_applies_to_its_route(route: Any, hit: set[str]) -> None:
    """route= is a method, a part of the path, both, or a pattern over both."""
    async with serving() as http:
        http.sandbox.faults.status(500, route=route)
        replies = {
            "GET /companies": await http.get("/companies"),
            "GET push": await http.get(f"{http.company}/push"),
            "POST push": await http.post(f"{http.at()}/push/invoices", DELIVERY),
        }

    assert {name for name, reply in replies.items() if reply.status == 500} == hit


async def test_chance_is_seeded() -> None:
    """probability= hits about that share, and the same calls for the same seed."""

    async def draw(seed: int) -> list[int]:
        async with serving(seed=seed) as http:
            http.sandbox.faults.status(500, probability=0.25)
            return await statuses(http, 200)

    first, again, other = await draw(1), await draw(1), await draw(2)
    assert first == again != other
    assert 30 <= Counter(first)[500] <= 70


async def test_rules_can_be_taken_back() -> None:
    """remove() ends one fault, clear() all."""
    async with serving() as http:
        rule = http.sandbox.faults.status(500)
        http.sandbox.faults.status(503)
        http.sandbox.faults.remove(rule)
        one = await statuses(http, 1)
        http.sandbox.faults.clear()

        assert one + await statuses(http, 1) == [503, 200]
        assert list(http.sandbox.faults) == []


@pytest.mark.parametrize(
    ("fault", "odd"),
    [
        (Faults.unavailable, {"skip": -1}),
        (Faults.unavailable, {"skip": 1.5}),
        (Faults.unavailable, {"times": 0}),
        (Faults.unavailable, {"times": True}),
        (Faults.unavailable, {"times": 1.5}),
        (Faults.unavailable, {"times": "2"}),
        (Faults.unavailable, {"probability": 1.1}),
        (Faults.unavailable, {"probability": -0.1}),
        (Faults.unavailable, {"route": "POST,PUT /push"}),
        (Faults.unavailable, {"route": "fetch it"}),
        (Faults.unavailable, {"probability": math.nan}),
        (Faults.unavailable, {"probability": "0.5"}),
        (Faults.unavailable, {"route": "GET /companies?page=2"}),
        (Faults.unavailable, {"route": "GET https://service.example/companies"}),
        (Faults.unavailable, {"route": "DELETE /data/"}),
        (Faults.unavailable, {"route": "GET /company/"}),
        (Faults.unavailable, {"route": "GET /options/invoices"}),  # of the other dialect
        (Faults.unavailable, {"route": "/companies/{companyId}/items"}),
        (Faults.unavailable, {"route": "GET /companies/{companyId}/{x}/{y}/items"}),
        (Faults.unavailable, {"route": "/companies."}),
        (Faults.unavailable, {"route": None}),
        (Faults.fail_next_push, {"route": "GET", "message": "no"}),
        (Faults.lose_answer, {"route": "GET"}),
        (Faults.lose_notifications, {"route": "GET"}),
        (Faults.push_seconds, {"route": "GET", "seconds": 1}),
        (Faults.drift, {"route": "POST /push/", "insert": 1}),
        (Faults.list_lag, {"route": "/data/", "seconds": 1}),
        (Faults.unavailable, {"seconds": -1}),
        (Faults.unavailable, {"seconds": math.nan}),
        (Faults.unavailable, {"seconds": "30"}),
        (Faults.unavailable, {"delay": -1}),
        (Faults.unavailable, {"retry_after": -1}),
        (Faults.unavailable, {"retry_after": math.inf}),
        (Faults.unavailable, {"retry_after": "1\r\nX: y"}),
        (Faults.not_ready, {"seconds": -1}),
        (Faults.list_lag, {"seconds": -1}),
        (Faults.status, {"code": 42}),
        (Faults.status, {"code": 103}),
        (Faults.status, {"code": 1000}),
        (Faults.status, {"code": "503"}),
        (Faults.status, {"headers": {"Retry-After": 5}, "code": 503}),
        (Faults.status, {"headers": {"X": "a\nb"}, "code": 503}),
        (Faults.html_from_proxy, {"status": 42}),
        (Faults.no_push_list, {"status": 500}),
        (Faults.truncate, {"at_byte": -1}),
        (Faults.cap_page_size, {"size": 0}),
        (Faults.drift, {"insert": -1}),
        (Faults.drift, {"insert": 0}),
        (Faults.drift, {"at": "middle", "insert": 1}),
        (Faults.fail_next_push, {"message": 5}),
        (Faults.foreign_writer, {"record": "invoice"}),
        (Faults.double_notifications, {"copies": 1.5}),
        (Faults.latency, {"seconds": (2, 1)}),
        (Faults.latency, {"seconds": -1}),
        (Faults.latency, {"seconds": (1, 2, 3)}),
        (Faults.latency, {"seconds": "1"}),
        (Faults.rate_limit, {"form": "minutes"}),
        (Faults.rate_limit, {"per_second": math.inf}),
        (Faults.rate_limit, {"per_second": 0}),
        (Faults.rate_limit, {"per_second": -1}),
        (Faults.rate_limit, {"per_second": math.nan}),
        (Faults.rate_limit, {"burst": 0}),
        (Faults.rate_limit, {"burst": 0.9}),
        (Faults.concurrency_limit, {"total": None}),
        (Faults.concurrency_limit, {"total": 0}),
        (Faults.concurrency_limit, {"per_company": 0}),
        (Faults.concurrency_limit, {"per_company": 0, "total": 1}),
        (Faults.double_notifications, {"copies": 0}),
        (Faults.forge_notifications, {"how": "rudely"}),
    ],
)
def test_a_fault_that_means_nothing_is_refused(fault: Any, odd: dict[str, Any]) -> None:
    """What could never apply, or would let nothing by, is a mistake in the script: it is named."""
    faults = Sandbox(invoices=0).faults
    with pytest.raises(ValueError, match=next(iter(odd))):
        fault(faults, **odd)

    assert list(faults) == []


def test_a_refused_value_is_shown_with_what_is_allowed() -> None:
    """The error names the argument, its value and the limit or the choices."""
    faults = Sandbox(invoices=0).faults
    with pytest.raises(ValueError, match=r"^code cannot be 42: Expected `int` >= 200$"):
        faults.status(42)
    with pytest.raises(ValueError, match=r"^form cannot be 'x': Expected one of seconds, date, no"):
        faults.rate_limit(form="x")  # type: ignore[arg-type]  # what a user may write


async def test_a_fault_of_pushes_lets_all_else_by() -> None:
    """A route narrows down whose pushes fail; other calls there neither meet nor use it up."""
    async with serving() as http:
        rule = http.sandbox.faults.fail_next_push("no", route=http.company)
        lost = http.sandbox.faults.lose_answer(route=http.company, skip=1)
        await http.get(f"{http.company}/push")
        failed = await http.push(1)

    assert (failed["status"], rule.hits, lost.hits) == ("Failed", 1, 0)


async def test_any_identifier_may_be_in_a_route() -> None:
    """Identifiers of the sandbox's and of the test's own making, and addresses it has not."""
    faults = Sandbox(invoices=0).faults
    for route in ("PUT /push/invoices/INV-17", "/companies/3f2a", "HEAD", re.compile("/reports")):
        faults.status(503, route=route)

    assert len(list(faults)) == 4


@pytest.mark.parametrize("odd", [{"tiems": 1}, {"time": 1}, {"path": "/push"}, {"prob": 0.1}])
def test_a_misspelt_scope_is_named(odd: dict[str, Any]) -> None:
    """A word that says nothing of when a fault applies is a TypeError that lists those that do."""
    faults = Sandbox(invoices=0).faults
    with pytest.raises(TypeError, match=f"{next(iter(odd))} .* route, skip, times, prob"):
        faults.status(503, **odd)

    assert list(faults) == []


async def test_a_fault_of_ones_own() -> None:
    """add() takes any function around the rest of the call."""
    async with serving() as http:

        async def twice(call: Any, proceed: Any) -> Any:
            answer = await proceed()
            return type(answer)(answer.status, answer.body + b" ", {"X-Twice": call.method})

        rule: Rule = http.sandbox.faults.add(twice, route="GET /companies/")
        reply = await http.get(http.company)

    assert (reply.headers["X-Twice"], rule.hits) == ("GET", 1)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 405, 409, 429, 500, 503, 418])
async def test_any_status_comes_with_the_error_body(code: int) -> None:
    """status(code) answers in the documented shape."""
    async with serving() as http:
        http.sandbox.faults.status(code, headers={"X-Why": "asked"})
        reply = await http.get("/companies")

    assert (reply.status, reply.body["statusCode"], reply.headers["X-Why"]) == (code, code, "asked")
    assert reply.body["correlationId"]


async def test_a_status_may_come_with_any_body() -> None:
    """Text, bytes, JSON; a type of its own; a proxy's HTML."""
    async with serving() as http:
        faults = http.sandbox.faults
        faults.status(503, b"", times=1)
        faults.status(502, {"title": "x"}, content_type="application/problem+json", times=1)
        faults.html_from_proxy(times=1)
        # The proxy is in front of the service, whatever was asked for first.
        html, empty, problem = [await http.get("/companies") for _ in range(3)]

    assert (empty.status, empty.text) == (503, "")
    assert (problem.text, problem.headers["Content-Type"]) == (
        '{"title":"x"}',
        "application/problem+json",
    )
    assert html.status == 502
    assert html.text.startswith("<html>")
    assert html.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("processed", [False, True])
async def test_an_error_may_hide_that_the_work_was_done(processed: bool) -> None:
    """processed=True records the push and answers the error all the same."""
    async with serving() as http:
        http.sandbox.faults.status(500, processed=processed, route="/push/")
        reply = await http.post(f"{http.at()}/push/invoices", DELIVERY)

        assert (reply.status, len(http.sandbox.pushes)) == (500, processed)


async def test_calls_before_a_window_do_not_use_it_up() -> None:
    """times= counts the calls that are refused, not those before the window begins."""
    async with serving() as http:
        rule = http.sandbox.faults.unavailable(30, delay=10, times=1)
        before = await statuses(http, 2)
        http.sandbox.clock.advance(seconds=10)

        assert before + await statuses(http, 2) == [200, 200, 503, 200]
    assert rule.hits == 1


async def test_unavailability_has_a_window() -> None:
    """503 from delay to delay + seconds of the service's time, with Retry-After."""
    async with serving() as http:
        http.sandbox.faults.unavailable(60, delay=30, retry_after=7)
        found = await statuses(http, 1)
        http.sandbox.clock.advance(seconds=31)
        refused = await http.get("/companies")
        http.sandbox.clock.advance(seconds=60)

        assert [*found, refused.status, *(await statuses(http, 1))] == [200, 503, 200]
    assert refused.headers["Retry-After"] == "7"


async def test_other_refusals() -> None:
    """not_ready is 409, expire_account 402, no_push_list 404 or 405 for the list alone."""
    async with serving() as http:
        faults = http.sandbox.faults
        faults.not_ready(route="/data/invoices", seconds=10)
        faults.expire_account(route="/connections/", times=1)
        faults.no_push_list(405)
        assert await statuses(http, 1, f"{http.company}/data/invoices") == [409]
        assert await statuses(http, 1, http.at()) == [402]
        assert await statuses(http, 1, f"{http.company}/push") == [405]
        operation = await http.push()
        assert await http.pushed(operation) == operation
        http.sandbox.clock.advance(seconds=11)
        assert await statuses(http, 1, f"{http.company}/data/invoices") == [200]


async def test_the_rate_limit_is_a_token_bucket() -> None:
    """burst at once, then per_second; 429 with Retry-After and X-Rate-Limit headers."""
    async with serving() as http:
        http.sandbox.faults.rate_limit(0.1, burst=3)
        replies = [await http.get("/companies") for _ in range(4)]
        http.sandbox.clock.advance(seconds=20.5)
        later = await statuses(http, 3)
        http.sandbox.clock.advance(hours=1)
        full = await statuses(http, 4)

    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["X-Rate-Limit-Remaining"] for reply in replies] == list("2100")
    assert replies[3].headers["Retry-After"] == "10"
    assert "Retry-After" not in replies[2].headers
    assert later == [200, 200, 429]
    assert full == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("form", "given", "told"),
    [("seconds", 2.5, "3"), ("seconds", "soon", "soon"), ("none", 5, None), ("seconds", 0, "0")],
)
async def test_retry_after_takes_every_form(form: Any, given: Any, told: str | None) -> None:
    """Whole seconds rounded up, any text, or no header."""
    async with serving() as http:
        http.sandbox.faults.rate_limit(0.01, burst=1, retry_after=given, form=form)
        await http.get("/companies")
        reply = await http.get("/companies")

    assert reply.headers.get("Retry-After") == told


async def test_retry_after_may_be_a_date() -> None:
    """An HTTP date, never before the time it means, by the clock of the Date header."""
    async with serving() as http:
        http.sandbox.clock.advance(days=3)
        http.sandbox.faults.rate_limit(0.01, burst=1, retry_after=90, form="date")
        await http.get("/companies")
        headers = (await http.get("/companies")).headers

    until = parsedate_to_datetime(headers["Retry-After"])
    assert 90 <= (until - parsedate_to_datetime(headers["Date"])).total_seconds() <= 91


@pytest.mark.parametrize(
    ("total", "per_company", "passed"), [(2, None, 2), (None, 2, 4), (None, 5, 8)]
)
async def test_concurrency_is_limited(
    total: int | None, per_company: int | None, passed: int
) -> None:
    """So many at once, in all or for each company; a place freed is a place."""
    async with serving() as http:
        gate = asyncio.Event()
        http.sandbox.faults.add(holding(gate))
        http.sandbox.faults.concurrency_limit(total, per_company=per_company)
        paths = [f"/companies/{company.id}" for company in http.sandbox.companies[:2]] * 4
        calls = [asyncio.create_task(http.get(path)) for path in paths]
        await until(lambda: http.sandbox.served == len(calls) - passed)
        gate.set()
        replies = await asyncio.gather(*calls)
        after = await statuses(http, 2)

    assert Counter(reply.status for reply in replies)[200] == passed
    assert after == [200, 200]
