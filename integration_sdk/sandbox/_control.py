"""The sandbox's own addresses: a page at ``/``, and what it and programs do to a running sandbox.

They are no part of the service: they need no key, meet no faults and are not remembered. What the
page shows of the service, it requests as any client does.

The page contains the sandbox's key, so it is served only to programs of this machine, which are
told by their address; only under an address of this machine, or a site whose name was made to lead
here could read it in their browser; and changes are accepted only from the page itself.
Programs that send the key may use its calls from anywhere, above all ``/_page/faults``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve

from integration_sdk.sandbox._account import DAY, Company, Connection
from integration_sdk.sandbox._call import (
    Answer,
    Call,
    Refused,
    Respond,
    answer,
    bad_request,
    not_found,
)
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._faults import HTML, Faults
from integration_sdk.sandbox._pushes import VERBS, Operation
from integration_sdk.sandbox._routes import wrong_method
from integration_sdk.sandbox._schemas import PLATFORMS, list_name, option_name
from integration_sdk.sandbox._service import Service

PUSHES_SHOWN = 50
COMPANIES_SHOWN = 500
_LABELS = (
    *("invoiceNumber", "creditNoteNumber", "reference", "code", "nominalCode"),
    *("customerName", "supplierName", "name", "description"),
)
_SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class Control:
    """Answers the sandbox's own calls, and leaves all *others* to the service."""

    def __init__(self, service: Service, faults: Faults, others: Respond) -> None:
        self._service, self._faults, self._others = service, faults, others
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
        if call.path != "/" and call.segments[:1] != ["_page"]:
            return await self._others(call)
        try:
            told = self._own(call)
        except Refused as refused:
            told = self._service.refuse(refused)
        return evolve(told, headers={**_SAFE, **told.headers}, aside=True)

    def _own(self, call: Call) -> Answer:
        self._check_origin(call)
        method = "GET" if call.method == "HEAD" else call.method
        act = self._routes.get((method, call.path))
        if act is None:
            methods = {method for method, path in self._routes if path == call.path}
            raise wrong_method(call.method, methods) if methods else not_found("no such address")
        self._service.ledger.settle(call.now)
        return act(call)

    def _check_origin(self, call: Call) -> None:
        if self._service.has_key(call):
            return
        host = call.headers.get("Host", "")
        if not (call.is_from_here and _is_local(host, self._service.settings.host)):
            why = "open the page at the sandbox's own machine, or send the API key"
            raise Refused(403, f"Forbidden: {why}")
        if call.method in {"GET", "HEAD"}:
            return
        if call.headers.get("Origin", f"http://{host}") != f"http://{host}":
            raise Refused(403, "Forbidden: only the page itself may do this")
        # Forms of other sites cannot send JSON or delete.
        kind = call.headers.get("Content-Type", "")
        if call.method == "POST" and not kind.startswith("application/json"):
            raise Refused(415, "Unsupported media type: send application/json")

    def _about(self, _call: Call) -> Answer:
        settings, companies = self._service.settings, list(self._service.companies.values())
        path = "options/{dataType}" if settings.published else "dataTypes/{dataType}/options/POST"
        types = {
            platform.name: [
                {"name": name, "path": list_name(name), "label": shape.name}
                for name, shape in platform.shapes.items()
            ]
            for platform in PLATFORMS
        }
        about = {
            "key": settings.api_key,
            "credential": self._service.credential,
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
        return {
            "key": push.key,
            "company": company.name if company else push.company,
            "platform": connection.platform if connection else "",
            "dataType": option_name(push.data_type),
            "change": VERBS[push.verb].words,
            "label": _label(push),
            "status": push.status,
            "seconds": (now if push.completed is None else push.completed) - push.requested,
            "problems": [
                ": ".join(filter(None, (problem.item, problem.message)))
                for problem in push.problems
                if push.status == "Failed"
            ],
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


def _is_local(host: str, bound: str) -> bool:
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
    hashes = {tag: b64encode(sha256(text).digest()).decode() for tag, text in _INLINE.findall(html)}
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; "
        f"script-src 'sha256-{hashes[b'script']}'; style-src 'sha256-{hashes[b'style']}'"
    )
    return Answer(200, html, {"Content-Security-Policy": policy}, HTML)


def _company(company: Company) -> dict[str, Any]:
    return {
        "id": company.id,
        "name": company.name,
        "connections": [
            {"id": one.id, "platform": one.platform, "pace": _pace(one), "online": one.online}
            for one in company.connections
        ],
    }


def _pace(connection: Connection) -> str:
    if not connection.online:
        return "is offline"
    return "answers at once" if connection.package.pace == "at once" else "answers later"


def _label(push: Operation) -> str:
    """What people call the record: its number, reference or name, or its identifier."""
    record = push.record or {}
    named = [str(record[name]) for name in _LABELS if record.get(name)]
    return (*named, ("" if push.verb == "POST" else push.record_id) or "")[0]
