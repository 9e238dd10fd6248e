"""What a call passes on its way to an endpoint, and the sandbox's own addresses.

From the outside in: the faults in front, the key check, the account's limits, kept idempotent
answers, the faults within.

Source: "Limits"; "Account limit errors (402)". Assumed: the daily quota and idempotency keys are
the published ones; the document's dialect ignores the latter.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from re import DOTALL, findall
from typing import Any
from urllib.parse import urlsplit

from attrs import define, evolve, field

from integration_sdk.sandbox import _endpoints  # noqa: F401 - its routes are found by `find`
from integration_sdk.sandbox._call import (
    HTML,
    Answer,
    Call,
    Problem,
    Refused,
    Respond,
    answer,
    bad_request,
    iso,
    not_found,
    rate_headers,
)
from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._platforms import PLATFORMS, Company, Connection
from integration_sdk.sandbox._pushes import VERBS, Operation
from integration_sdk.sandbox._routes import find, wrong_method
from integration_sdk.sandbox._schemas import option_name
from integration_sdk.sandbox._service import DAY, FREE_DAYS, Service

KEPT_SECONDS = 90 * 60


class Front:
    """Answers calls to *service*; a refusal has the documented error body."""

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults, self._replays = service, faults, Replays()
        left = (FREE_DAYS - service.settings.account_age_days) * DAY
        self._expires = service.clock.now() + left
        self._day, self._used = -1, 0

    async def respond(self, call: Call) -> Answer:
        """Answer *call*."""
        return await self._faults.through(call, self._counted, in_front=True)

    async def _counted(self, call: Call) -> Answer:
        if not self._service.has_key(call):
            problem = Problem("Authorization", "The API key is incorrect", "Authentication")
            raise Refused(401, problems=[problem], headers={"WWW-Authenticate": "Basic"})
        limits = self._count(call.now)
        try:
            found = await self._admitted(call)
        except Refused as refused:
            found = self._service.refuse(refused)
        return evolve(found, headers={**limits, **found.headers}) if limits else found

    def _count(self, now: float) -> dict[str, str]:
        """Count one request and return the rate-limit headers; 429 if the quota is used up."""
        settings = self._service.settings
        if settings.quota is None:
            return {}
        if self._day != now // DAY:
            self._day, self._used = int(now // DAY), 0
        self._used += 1
        reset = (self._day + 1) * DAY
        headers = rate_headers(settings.quota, settings.quota - self._used, reset)
        # A quota that was not asked for is counted and told, and refuses nothing.
        if settings.daily_quota is not None and self._used > settings.quota:
            headers["Retry-After"] = str(int(reset - now) + 1)
            raise Refused(429, "Too many requests: the daily quota is spent", headers=headers)
        return headers

    async def _admitted(self, call: Call) -> Answer:
        settings = self._service.settings
        if settings.free_plan and call.now > self._expires:
            message = f"Account expired: the free account is older than {FREE_DAYS} days"
            raise Refused(402, problems=[Problem(None, message)])
        within = partial(self._faults.through, respond=self._called, in_front=False)
        if settings.is_published:
            return await self._replays.through(call, within)
        return await within(call)

    async def _called(self, call: Call) -> Answer:
        self._service.ledger.settle(call.now)
        endpoint, call.names = find(self._service.settings.dialect, call.method, call.segments)
        return await endpoint(self._service, call)


@define
class _Kept:
    request: tuple[object, ...]
    at: float
    answer: Answer | None = None


@define
class Replays:
    """Answers to POSTs, kept under their ``Idempotency-Key`` for 90 minutes and repeated.

    A 5xx is kept; a 429 is not, nor are answers of faults in front of the service. The same key
    with another query or body is 422; with a request in progress it is 409.
    """

    kept: dict[str, _Kept] = field(factory=dict)

    async def through(self, call: Call, respond: Respond) -> Answer:
        """Return the kept answer to *call*, or that of *respond*, which is then kept."""
        key = call.headers.get("Idempotency-Key")
        if call.method != "POST" or not key:
            return await respond(call)
        request = call.path, tuple(call.params), call.body
        known = self.kept.get(key)
        if known is not None and call.now - known.at <= KEPT_SECONDS:
            if known.request != request:
                raise Refused(422, "The Idempotency-Key was used for another request")
            if known.answer is None:
                raise Refused(409, "Conflict: a request with this Idempotency-Key is at work")
            return evolve(known.answer, dropped=False, cut_at=None)
        entry = self.kept[key] = _Kept(request, call.now)
        try:
            entry.answer = await respond(call)
        finally:
            keeps = entry.answer is not None and entry.answer.status != 429
            if not keeps and self.kept.get(key) is entry:
                del self.kept[key]
        return entry.answer


PUSHES_SHOWN, COMPANIES_SHOWN = 50, 500
_SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Control:
    """Answers the sandbox's own calls: a page at ``/``, and what is done to a running sandbox.

    They are no part of the service: they need no key, meet no faults and are not remembered. The
    page contains the key, so it is served only to programs of this machine, under an address of
    this machine, or a site whose name was made to lead here could read it; and changes are accepted
    only from the page itself. Programs that send the key may use its calls from anywhere.
    """

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults = service, faults
        self._routes: Mapping[tuple[str, str], Callable[[Call], Answer]] = {
            ("GET", "/"): lambda call: document(),
            ("GET", "/_page/about"): self._about,
            ("GET", "/_page/state"): self._state,
            ("GET", "/_page/faults"): lambda call: answer(faults.listed()),
            ("POST", "/_page/faults"): partial(self._change, faults.add_listed),
            ("DELETE", "/_page/faults"): partial(self._change, faults.end_listed),
            ("POST", "/_page/advance"): self._advance,
            ("POST", "/_page/online"): self._bring_online,
        }

    async def respond(self, call: Call) -> Answer:
        """Answer *call*."""
        try:
            self._check_origin(call)
            act = self._routes.get((call.method, call.path))
            if act is None:
                methods = {method for method, path in self._routes if path == call.path}
                raise wrong_method(call.method, methods) if methods else not_found("no such page")
            self._service.ledger.settle(call.now)
            found = act(call)
        except Refused as refused:
            found = self._service.refuse(refused)
        return evolve(found, headers={**_SAFE, **found.headers})

    def _check_origin(self, call: Call) -> None:
        if self._service.has_key(call):
            return
        host = call.headers.get("Host", "")
        bound = self._service.settings.host.lower()
        if not (_is_loopback(call.peer) and (_is_loopback(host) or _name(host) == bound)):
            why = "open the page at the sandbox's own machine, or send the API key"
            raise Refused(403, f"Forbidden: {why}")
        if call.method == "GET":
            return
        # Forms of other sites cannot send JSON or delete.
        kind = call.headers.get("Content-Type", "")
        if call.headers.get("Origin", f"http://{host}") != f"http://{host}" or (
            call.method == "POST" and not kind.startswith("application/json")
        ):
            raise Refused(403, "Forbidden: only the page itself may do this, as application/json")

    def _about(self, _call: Call) -> Answer:
        service, companies = self._service, list(self._service.companies.values())
        published = service.settings.is_published
        path = "options/{dataType}" if published else "dataTypes/{dataType}/options/POST"
        types = {
            platform.name: [
                {"name": option_name(name), "path": name, "label": shape.name}
                for name, shape in platform.shapes.items()
                if name != "bankTransactions"  # they are pushed to an account
            ]
            for platform in PLATFORMS
        }
        about = {
            "key": service.api_key,
            "credential": service.credential,
            "count": len(companies),
            "options": "/companies/{companyId}/connections/{connectionId}/" + path,
            "companies": [_company(company) for company in companies[:COMPANIES_SHOWN]],
            "dataTypes": types,
        }
        return answer(about)

    def _state(self, call: Call) -> Answer:
        ledger = self._service.ledger
        state = {
            "now": iso(call.now, digits=0),
            "companies": len(self._service.companies),
            "pushes": [self._push(push, call.now) for push in ledger.latest(PUSHES_SHOWN)],
            "recorded": len(ledger),
            "faults": self._faults.listed(call.now),
        }
        return answer(state)

    def _push(self, push: Operation, now: float) -> dict[str, Any]:
        company = self._service.companies.get(push.company)
        connection = company and company.connection(push.connection)
        problems = push.problems if push.status == "Failed" else ()
        return {
            "key": push.key,
            "company": company.name if company else push.company,
            "platform": connection.platform if connection else "",
            "what": f"{VERBS[push.verb].words} {option_name(push.data_type)} {push.label}".strip(),
            "status": push.status,
            "seconds": (now if push.completed is None else push.completed) - push.requested,
            "problems": [": ".join(filter(None, (one.item, one.message))) for one in problems],
        }

    def _change(self, change: Callable[[bytes], None], call: Call) -> Answer:
        try:
            change(call.body)
        except ValueError as error:
            raise bad_request("faults", str(error)) from None
        return answer(self._faults.listed())

    def _advance(self, call: Call) -> Answer:
        seconds = call.json_object().get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds <= DAY:
            raise bad_request("seconds", f"seconds is a whole number from 1 to {DAY}")
        self._service.clock.advance(seconds=seconds)
        self._service.ledger.settle(call.now)
        return self._state(call)

    def _bring_online(self, call: Call) -> Answer:
        body = call.json_object()
        ids = str(body.get("companyId")), str(body.get("connectionId"))
        self._service.bring_online(self._service.connection(*ids))
        return self._about(call)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    """Whether *host* is this machine's own address; a port behind it does not matter."""
    try:
        address = ip_address(host if host.count(":") > 1 and host[0] != "[" else _name(host))
    except ValueError:
        return _name(host) == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@cache
def document() -> Answer:
    """Return the page; a browser runs only the scripts that are in its file."""
    html = files("integration_sdk.sandbox").joinpath("_page.html").read_bytes()
    hashes = {
        tag: b64encode(sha256(text).digest()).decode()
        for tag, text in findall(rb"<(script|style)>(.*?)</\1>", html, DOTALL)
    }
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; "
        f"script-src 'sha256-{hashes[b'script']}'; style-src 'sha256-{hashes[b'style']}'"
    )
    return Answer(200, html, {"Content-Security-Policy": policy}, HTML)


def _company(company: Company) -> dict[str, Any]:
    connections = [
        {"id": one.id, "platform": one.platform, "pace": _pace(one), "online": one.online}
        for one in company.connections
    ]
    return {"id": company.id, "name": company.name, "connections": connections}


def _pace(connection: Connection) -> str:
    if not connection.online:
        return "is offline"
    return "answers at once" if connection.package.pace == "at once" else "answers later"
