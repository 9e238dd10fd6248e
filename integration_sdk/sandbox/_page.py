"""The page at ``/``: recent pushes, a form to push with, and switches for a few faults.

It is not part of the service: its own calls need no key, meet no faults and are not remembered.
What it shows of the service, it requests as any client does.

The page contains the sandbox's key, so it is served only to programs of this machine, which are
told by their address; only under an address of this machine, or a site whose name was made to lead
here could read it in their browser; and changes are accepted only from the page itself.
Programs that send the key may use its calls from anywhere, above all ``/_page/faults``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve, frozen

from integration_sdk.sandbox._call import (
    Answer,
    Call,
    Problem,
    Refused,
    answer,
    bad_request,
    not_found,
)
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._companies import Company, Connection
from integration_sdk.sandbox._faults.named import add_fault, add_listed, listed
from integration_sdk.sandbox._faults.rules import Rule
from integration_sdk.sandbox._pushes.catalogue import DATA_TYPES, list_name, option_name
from integration_sdk.sandbox._pushes.operation import Operation
from integration_sdk.sandbox._pushes.platforms import PLATFORMS, Platform
from integration_sdk.sandbox._service import Service

SHOWN = 50
CHANGES = {"POST": "Create", "PUT": "Update", "DELETE": "Delete", "ATTACH": "Attach to"}
COMPANIES_SHOWN = 500
HTML = "text/html; charset=utf-8"
DAY = 86_400
SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


@frozen
class Switch:
    """A fault that the page can turn on, with these *options*."""

    label: str
    about: str
    options: Mapping[str, Any]


SWITCHES: Mapping[str, Switch] = {
    "rate_limit": Switch("Rate limit", "429 above 2 requests a second", {"per_second": 2}),
    "unavailable": Switch("Maintenance", "503 for 30 seconds", {"seconds": 30, "retry_after": 5}),
    "latency": Switch("Latency", "Every call takes 1 to 3 seconds", {"seconds": (1, 3)}),
    "fail_next_push": Switch(
        "Fail next push",
        "The platform refuses one push",
        {"message": "The platform refuses this push, as you asked"},
    ),
}


class Webpage:
    """Answers the page's own calls, and leaves all others to *service*."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._on: dict[str, Rule] = {}
        self._routes: Mapping[tuple[str, str], Callable[[Call], Answer]] = {
            ("GET", "/"): lambda call: document(),
            ("GET", "/_page/about"): self._about,
            ("GET", "/_page/state"): self._state,
            ("GET", "/_page/faults"): self._listed,
            ("POST", "/_page/faults"): self._add,
            ("DELETE", "/_page/faults"): self._end,
            ("POST", "/_page/fault"): self._switch,
            ("POST", "/_page/advance"): self._advance,
            ("POST", "/_page/online"): self._bring_online,
        }

    async def respond(self, call: Call) -> Answer:
        """Answer *call*."""
        if call.path != "/" and call.segments[:1] != ["_page"]:
            return await self._service.respond(call)
        try:
            told = self._own(call)
        except Refused as refused:
            told = self._service.refuse(refused)
        return evolve(told, headers={**SAFE, **told.headers}, aside=True)

    def _own(self, call: Call) -> Answer:
        self._check_origin(call)
        method = "GET" if call.method == "HEAD" else call.method
        act = self._routes.get((method, call.path))
        if act is None:
            raise self._no_route(call)
        self._service.ledger.settle(call.now)
        return act(call)

    def _no_route(self, call: Call) -> Refused:
        allowed = ", ".join(sorted(method for method, path in self._routes if path == call.path))
        if not allowed:
            return not_found("the page has no such address")
        return Refused(405, f"Method not allowed: {call.method}", headers={"Allow": allowed})

    def _check_origin(self, call: Call) -> None:
        if self._service.has_key(call):
            return
        host = call.headers.get("Host", "")
        if not (call.is_from_here and is_local(host, self._service.settings.host)):
            why = "open the page at the sandbox's own machine, or send the API key"
            raise Refused(403, f"Forbidden: {why}")
        if call.method in {"GET", "HEAD"}:
            return
        if call.headers.get("Origin", f"http://{host}") != f"http://{host}":
            raise Refused(403, "Forbidden: only the page itself may do this")
        # Forms of other sites cannot send JSON or delete.
        if call.method == "POST" and not call.headers.get("Content-Type", "").startswith(
            "application/json"
        ):
            raise Refused(415, "Unsupported media type: send application/json")

    # ------------------------------------------------------------------ what it shows

    def _about(self, _call: Call) -> Answer:
        settings = self._service.settings
        options = (
            "options/{dataType}" if settings.published else "dataTypes/{dataType}/options/POST"
        )
        companies = list(self._service.companies.values())[:COMPANIES_SHOWN]
        return answer(
            {
                "key": settings.api_key,
                "credential": self._service.credential,
                "count": len(self._service.companies),
                "options": "/companies/{companyId}/connections/{connectionId}/" + options,
                "companies": [_company(company) for company in companies],
                "dataTypes": {platform.name: _data_types(platform) for platform in PLATFORMS},
            }
        )

    def _state(self, call: Call) -> Answer:
        ledger = self._service.ledger
        return answer(
            {
                "now": iso(call.now, digits=0),
                "companies": len(self._service.companies),
                "pushes": [self._push(push, call.now) for push in ledger.latest(SHOWN)],
                "recorded": len(ledger),
                "faults": self._faults(call.now),
            }
        )

    def _push(self, push: Operation, now: float) -> dict[str, Any]:
        company = self._service.companies.get(push.company)
        connection = company and company.connection(push.connection)
        ended = now if push.completed is None else push.completed
        return {
            "key": push.key,
            "company": company.name if company else push.company,
            "platform": connection.platform if connection else "",
            "dataType": option_name(push.data_type),
            "change": CHANGES[push.verb],
            "status": push.status,
            "requested": iso(push.requested, digits=0),
            "seconds": ended - push.requested,
            "problems": [_sentence(problem) for problem in push.problems]
            if push.status == "Failed"
            else [],
        }

    def _faults(self, now: float) -> dict[str, Any]:
        in_force = [rule for rule in self._service.faults if not rule.is_over(now)]
        ours = {name for name, rule in self._on.items() if rule in in_force}
        switches = [
            {"name": name, "label": switch.label, "about": switch.about, "on": name in ours}
            for name, switch in SWITCHES.items()
        ]
        return {"switches": switches, "others": len(in_force) - len(ours)}

    # ------------------------------------------------------------------ what it does

    def _listed(self, _call: Call) -> Answer:
        return Answer(200, listed(self._service.faults))

    def _add(self, call: Call) -> Answer:
        try:
            add_listed(self._service.faults, call.body)
        except ValueError as error:
            raise bad_request("faults", str(error)) from None
        return self._listed(call)

    def _end(self, call: Call) -> Answer:
        self._service.faults.clear()
        return self._listed(call)

    def _switch(self, call: Call) -> Answer:
        body, faults = call.json_object(), self._service.faults
        name, on = body.get("name"), body.get("on")
        if not isinstance(name, str) or name not in SWITCHES:
            raise bad_request("name", f"name is one of {', '.join(SWITCHES)}")
        if not isinstance(on, bool):
            raise bad_request("on", "on is true or false")
        before = self._on.pop(name, None)
        if before is not None and before in faults:
            faults.remove(before)
        if on:
            self._on[name] = add_fault(faults, name, **SWITCHES[name].options)
        return self._state(call)

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


def is_local(host: str, bound: str) -> bool:
    """Whether the ``Host`` header names this machine, or the address *bound* to."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in {"localhost", bound.lower()} or ip_address(name).is_loopback
    except ValueError:
        return False


@cache
def document() -> Answer:
    """Return the page; a browser runs only the scripts that are in its file."""
    html = files("integration_sdk.sandbox").joinpath("_page.html").read_bytes()
    hashes = {tag.decode(): _hash(text) for tag, text in _INLINE.findall(html)}
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; "
        f"script-src {hashes['script']}; style-src {hashes['style']}"
    )
    return Answer(200, html, {"Content-Security-Policy": policy}, HTML)


def _hash(text: bytes) -> str:
    return f"'sha256-{b64encode(sha256(text).digest()).decode()}'"


def _company(company: Company) -> dict[str, Any]:
    connections = [
        {
            "id": connection.id,
            "platform": connection.platform,
            "pace": _pace(connection),
            "online": connection.online,
        }
        for connection in company.connections
    ]
    return {"id": company.id, "name": company.name, "connections": connections}


def _pace(connection: Connection) -> str:
    if not connection.online:
        return "is offline"
    return "answers at once" if connection.package.pace == "at once" else "answers later"


def _data_types(platform: Platform) -> list[dict[str, str]]:
    return [
        {"name": name, "path": list_name(name), "label": shape.name}
        for name in DATA_TYPES
        if (shape := platform.shape(name)) is not None
    ]


def _sentence(problem: Problem) -> str:
    return f"{problem.item}: {problem.message}" if problem.item else problem.message
