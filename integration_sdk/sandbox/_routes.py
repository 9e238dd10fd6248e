"""The endpoints: a decorated function for each, in the order of the interface document.

Source: "Endpoints". Assumed: paths and bodies that the document does not show are the published
ones. The dialects differ in the path of push options and in how a company is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from functools import cache
from math import inf
from typing import Any

from attrs import frozen

from integration_sdk.sandbox._account import Company, Connection
from integration_sdk.sandbox._books import KINDS, DataSet
from integration_sdk.sandbox._call import (
    Answer,
    Call,
    Problem,
    Refused,
    answer,
    bad_request,
    encode,
    not_found,
)
from integration_sdk.sandbox._lists import listed
from integration_sdk.sandbox._pushes import Operation
from integration_sdk.sandbox._schemas import DATA_TYPES, describe, list_name, option_name
from integration_sdk.sandbox._service import Service
from integration_sdk.sandbox._settings import FREE_COMPANIES, DialectName, new_uuid

Endpoint = Callable[[Service, Call], Awaitable[Answer]]
C = "/companies/{companyId}"
K = C + "/connections/{connectionId}"
LONGEST_TIMEOUT = 2**31 - 1
FREE_SYNC_HOURS = 24
_FLAGS = {None, "true", "false", "True", "False"}


@frozen
class Route:
    """An address: a method, and the segments of a path, some of which are ``{placeholders}``."""

    method: str
    parts: list[str]
    dialect: DialectName | None
    endpoint: Endpoint

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the placeholders' values if the path of *segments* matches, else None."""
        if len(segments) != len(self.parts):
            return None
        values = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{") and segment:
                values[part[1:-1]] = segment
            elif part != segment:
                return None
        return values


_ROUTES: list[Route] = []


def route(*addresses: str, dialect: DialectName | None = None) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint answer at *addresses*, of one *dialect* or of both."""

    def note(endpoint: Endpoint) -> Endpoint:
        for address in addresses:
            method, path = address.split()
            _ROUTES.append(Route(method, path.split("/")[1:], dialect, endpoint))
        return endpoint

    return note


@cache
def _routes_of(dialect: DialectName) -> list[Route]:
    routes = [route for route in _ROUTES if route.dialect in {None, dialect}]
    # Literal segments match before placeholders: "{" sorts after every letter.
    return sorted(routes, key=lambda route: route.parts)


def samples(dialect: DialectName) -> list[str]:
    """Return a call of each kind, such as ``GET /companies/{companyId}/data/invoices``."""
    return [
        f"{route.method} /{'/'.join(route.parts)}".replace("{dataType}", name)
        for route in _routes_of(dialect)
        for name in sorted({"bankAccounts", *KINDS, *DATA_TYPES})
    ]


def find(dialect: DialectName, method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """Return the endpoint for *method* on the path of *segments*, and the placeholders' values.

    Refuses an unknown path with 404, a method that the path does not have with 405.
    """
    allowed: set[str] = set()
    for route in _routes_of(dialect):
        values = route.match(segments)
        if values is None:
            continue
        if route.method == method:
            return route.endpoint, values
        allowed.add(route.method)
    if not allowed:
        raise not_found("there is no such address")
    raise wrong_method(method, allowed)


def wrong_method(method: str, allowed: set[str]) -> Refused:
    """405 at an address that has the *allowed* methods only."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return Refused(405, f"Method not allowed: {method}", headers=headers)


# Assumed: the update's options ("not shown") as in 2021.
@route(
    f"GET {K}/dataTypes/{{dataType}}/options/POST",
    f"GET {K}/dataTypes/{{dataType}}/options/PUT",
    dialect="document",
)
@route(f"GET {K}/options/{{dataType}}", dialect="published")
async def get_options(service: Service, call: Call) -> Answer:
    """Return the push options of the connection for this data type."""
    shape = service.shape(_connection(service, call), _spelt(service, call, option_name))
    return answer(describe(shape, published=service.settings.published))


@route(
    f"POST {K}/push/{{dataType}}",
    f"PUT {K}/push/{{dataType}}/{{recordId}}",
    f"DELETE {K}/push/{{dataType}}/{{recordId}}",
)
async def push(service: Service, call: Call) -> Answer:
    """Create, replace or delete a record: a push operation, normally Pending."""
    if call.method == "PUT" and call.param("forceUpdate") not in _FLAGS:
        raise bad_request("forceUpdate", "forceUpdate is true or false")
    return _push(service, call, call.method)


@route(
    f"POST {K}/push/{{dataType}}/{{recordId}}/attachment",
    f"POST {K}/push/bills/{{recordId}}/attachments",  # only bills spell it so
)
async def attach(service: Service, call: Call) -> Answer:
    """Attach a file: multipart with a ``file``; a push operation."""
    head = f"Content-Type: {call.headers.get('Content-Type', '')}\r\n\r\n".encode()
    parts = BytesParser().parsebytes(head + call.body).get_payload()
    if not isinstance(parts, list) or "file" not in map(_field_name, parts):
        raise bad_request("file", "an attachment is sent as multipart/form-data, field file")
    call.names.setdefault("dataType", "bills")
    return _push(service, call, "ATTACH")


@route(f"GET {C}/push")
async def list_pushes(service: Service, call: Call) -> Answer:
    """A page of the company's pushes, the most recent first."""
    company = _company(service, call)
    until = call.now - call.world.list_lag if call.world.list_lag else inf
    recorded = service.ledger.of_company(company.id, until=until)
    if call.param("orderBy") != "requestedOnUtc":
        recorded = recorded[::-1]
    wording, ordered = service.wording, {"requestedOnUtc", "-requestedOnUtc"}
    return listed(call, recorded, wording.row, rare=wording.rare, ordered=ordered)


@route(f"GET {C}/push/{{pushOperationKey}}")
async def get_push(service: Service, call: Call) -> Answer:
    """One push operation."""
    key = call.names["pushOperationKey"]
    operation = service.ledger.find(_company(service, call).id, key)
    if operation is None:
        raise not_found(f"there is no push {key}")
    return _told(service, operation)


@route("GET /companies")
async def list_companies(service: Service, call: Call) -> Answer:
    """A page of companies, in the order of their creation."""
    return listed(call, list(service.companies.values()), _row)


@route("POST /companies")
async def create_company(service: Service, call: Call) -> Answer:
    """A company without connections; 402 beyond the plan's limit."""
    name, description = _naming(call.json_object())
    if service.settings.free_plan and len(service.companies) >= FREE_COMPANIES:
        message = f"Company limit exceeded: the free plan holds {FREE_COMPANIES} companies"
        problem = Problem("Company", message, "CreateCompany")
        raise Refused(402, "Company validation exception: company limit exceeded", [problem])
    company = Company(new_uuid(service.chance), name, call.now, description)
    service.companies[company.id] = company
    return answer(company.body())


@route(f"GET {C}")
async def get_company(service: Service, call: Call) -> Answer:
    """One company."""
    return answer(_company(service, call).body())


@route(f"PUT {C}")
@route(f"PATCH {C}", dialect="published")  # today's generated clients change a company so
async def change_company(service: Service, call: Call) -> Answer:
    """Another name and description; PATCH keeps what is left out."""
    company, body = _company(service, call), call.json_object()
    if call.method == "PATCH":
        body = {"name": company.name, "description": company.description} | body
    company.name, company.description = _naming(body)
    return answer(company.body())


@route(f"DELETE {C}")
async def delete_company(service: Service, call: Call) -> Answer:
    """204, and the company is gone."""
    del service.companies[_company(service, call).id]
    return Answer(204)


@route(f"GET {C}/connections")
async def list_connections(service: Service, call: Call) -> Answer:
    """A page of the company's connections."""
    return listed(call, _company(service, call).connections, _row)


@route(f"GET {K}")
async def get_connection(service: Service, call: Call) -> Answer:
    """One connection."""
    return answer(_connection(service, call).body())


@route("POST /profile/syncSettings")
async def set_sync_settings(service: Service, call: Call) -> Answer:
    """204; 402 for a schedule that the plan does not allow."""
    settings = call.json_object()
    entries = settings.get("settings", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request("settings", "settings must be a list of objects", "SyncSettings")
    hours = [entry["syncSchedule"] for entry in (settings, *entries) if "syncSchedule" in entry]
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 0 for each in hours):
        raise bad_request("syncSchedule", "syncSchedule is a number of hours", "SyncSettings")
    if service.settings.free_plan and min(hours, default=FREE_SYNC_HOURS) < FREE_SYNC_HOURS:
        message = f"Schedule not allowed: at least {FREE_SYNC_HOURS} hours on the free plan"
        problem = Problem("SyncSettings", message, "SyncSettings")
        error = "Sync settings validation exception: sync schedule not allowed"
        raise Refused(402, error, [problem])
    service.sync_settings = settings
    return Answer(204)


@route(
    f"GET {C}/data/{{dataType}}",
    f"GET {C}/data/bankAccounts",
    f"GET {C}/data/bankAccounts/{{accountId}}/transactions",
    f"GET {K}/data/bankAccounts",
    f"GET {K}/data/bankAccounts/{{accountId}}/bankTransactions",
)
async def list_records(service: Service, call: Call) -> Answer:
    """A page of records, of bank accounts, or of the transactions of one."""
    return await _records(service, call).answer(call)


@route(
    f"GET {C}/data/{{dataType}}/{{recordId}}",
    f"GET {C}/data/bankAccounts/{{recordId}}",
    f"GET {K}/data/bankAccounts/{{recordId}}",
)
async def get_record(service: Service, call: Call) -> Answer:
    """One record, or one bank account."""
    identifier = call.names["recordId"]
    row = _records(service, call).get(identifier)
    if row is None:
        raise not_found(f"there is no record {identifier}")
    return Answer(200, row)


def _company(service: Service, call: Call) -> Company:
    return service.company(call.names["companyId"])


def _connection(service: Service, call: Call) -> Connection:
    return service.connection(call.names["companyId"], call.names["connectionId"])


def _records(service: Service, call: Call) -> DataSet:
    if "dataType" in call.names:
        return service.data_set(call.names["companyId"], call.names["dataType"])
    connection = _bank(service, call)
    if "accountId" in call.names:
        return service.bank_transactions(connection, call.names["accountId"])
    return service.bank_accounts(connection)


def _bank(service: Service, call: Call) -> Connection:
    """The connection of bank data; a legacy path, which names none, has the company's first."""
    if "connectionId" in call.names:
        return _connection(service, call)
    # "After the removal date, calls to legacy bank endpoints return 404 with the error body
    # (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)."
    removed = service.settings.legacy_removed
    if not isinstance(removed, bool):
        removed = datetime.fromtimestamp(call.now, UTC).date() > removed
    if removed:
        raise Refused(404)
    company = _company(service, call)
    if not company.connections:
        raise Refused(409, "Conflict: the data set bankAccounts is not ready")
    return company.connections[0]


def _push(service: Service, call: Call, verb: str) -> Answer:
    connection = _connection(service, call)
    if connection.status != "Linked":
        # Assumed: the document lists 403 without a scenario.
        raise Refused(403, f"Forbidden: the connection is {connection.status}")
    if verb in {"POST", "PUT"}:
        call.json_object()
    operation = service.push(
        connection,
        _spelt(service, call, list_name),
        verb,
        call.body,
        record_id=call.names.get("recordId"),
        timeout_minutes=call.whole("timeoutInMinutes", LONGEST_TIMEOUT),
        world=call.world,
    )
    return _told(service, operation)


def _spelt(service: Service, call: Call, spell: Callable[[str], str]) -> str:
    """Return the data type of the path; in the published dialect 404 if *spell* spells it else.

    "options and operations say `chartOfAccounts`, the push path says `accounts`."
    """
    name = call.names["dataType"]
    if service.settings.published and name != spell(name):
        raise not_found(f"the data type {spell(name)} is not called {name} here")
    return name


def _told(service: Service, operation: Operation) -> Answer:
    # "200 is the code used when the push operation was created, and the platform's own 202 or
    # 200 may differ from it."
    return Answer(200, service.wording.row(operation))


def _row(thing: Company | Connection) -> bytes:
    return encode(thing.body())


def _naming(body: dict[str, Any]) -> tuple[str, str]:
    """The name and the description of a company in a request, or 400."""
    name, description = body.get("name"), body.get("description") or ""
    if not isinstance(name, str) or not name.strip():
        raise bad_request("Name", "a company needs a name", "CreateCompany")
    if not isinstance(description, str):
        raise bad_request("Description", "a description is a text", "CreateCompany")
    return name, description


def _field_name(part: object) -> object:
    if not isinstance(part, Message):
        return None
    return part.get_param("name", header="content-disposition")
