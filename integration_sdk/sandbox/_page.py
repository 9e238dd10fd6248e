"""The sandbox's own addresses: a page at ``/``, and what is done to a running sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from integration_sdk.sandbox._call import (
    HTML,
    Answer,
    Call,
    Refused,
    answer,
    bad_request,
    iso,
    not_found,
)
from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._front import check_key
from integration_sdk.sandbox._pushes import VERBS, Operation
from integration_sdk.sandbox._routes import wrong_method
from integration_sdk.sandbox._schemas import PLATFORMS
from integration_sdk.sandbox._service import DAY, Service

PUSHES_SHOWN = 50
_PAGE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class Page:
    """Answers the sandbox's own calls.

    They meet no faults and are not remembered. All but the page itself need the API key, which
    the page takes from the fragment of its address.
    """

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service, self._faults = service, faults
        self._routes: Mapping[tuple[str, str], Callable[[Call], object]] = {
            ("GET", "/_page/state"): self._state,
            ("GET", "/_page/faults"): lambda call: faults.listed(),
            ("POST", "/_page/faults"): partial(self._change, faults.add_listed),
            ("DELETE", "/_page/faults"): partial(self._change, faults.end_listed),
            ("POST", "/_page/advance"): self._advance,
        }

    async def respond(self, call: Call) -> Answer:
        if call.path == "/":
            html = files("integration_sdk.sandbox").joinpath("_page.html").read_bytes()
            return Answer(200, html, _PAGE, HTML)
        try:
            check_key(self._service, call)
            act = self._routes.get((call.method, call.path))
            if act is None:
                methods = {method for method, path in self._routes if path == call.path}
                raise wrong_method(call.method, methods) if methods else not_found("no such page")
            self._service.ledger.settle(call.now)
            return answer(act(call))
        except Refused as refused:
            return self._service.refuse(refused)

    def _state(self, call: Call) -> dict[str, Any]:
        ledger, published = self._service.ledger, self._service.settings.is_published
        return {
            "now": iso(call.now, digits=0),
            "pushes": [self._push(push, call.now) for push in ledger.latest(PUSHES_SHOWN)],
            "recorded": len(ledger),
            "faults": self._faults.listed(call.now),
            "dataTypes": [name for name in PLATFORMS[0].shapes if name != "bankTransactions"],
            "options": "options/{dataType}" if published else "dataTypes/{dataType}/options/POST",
        }

    def _push(self, push: Operation, now: float) -> dict[str, Any]:
        company = self._service.companies.get(push.company)
        problems = push.problems if push.status == "Failed" else ()
        return {
            "key": push.key,
            "where": company.name if company else "a company that is gone",
            "what": f"{VERBS[push.verb][1]} {push.data_type} {_label(push)}".strip(),
            "status": push.status,
            "seconds": (now if push.completed is None else push.completed) - push.requested,
            "problems": [": ".join(filter(None, (one.item, one.message))) for one in problems],
        }

    def _change(self, change: Callable[[bytes], None], call: Call) -> list[dict[str, Any]]:
        try:
            change(call.body)
        except ValueError as error:
            raise bad_request("faults", str(error)) from None
        return self._faults.listed()

    def _advance(self, call: Call) -> dict[str, Any]:
        seconds = call.json_object().get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds <= DAY:
            raise bad_request("seconds", f"seconds is a whole number from 1 to {DAY}")
        self._service.clock.advance(seconds=seconds)
        self._service.ledger.settle(call.now)
        return self._state(call)


def _label(push: Operation) -> str:
    """Return what people call the record: the first text in it, or its identifier."""
    values = push.record.values() if isinstance(push.record, dict) else ()
    texts = (value for value in values if isinstance(value, str))
    return next(texts, push.record_id or "")
