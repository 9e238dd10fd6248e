"""The endpoints: a decorated function for each, in the order of the interface document.

A new endpoint is a function here, and what it needs in `_service`.

Source: "Endpoints". Assumed: paths and bodies that the document does not show are the published
ones. The dialects differ in the path of push options and in how a company is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email.parser import BytesParser
from typing import Any

from integration_sdk.sandbox._call import (
    Answer,
    Call,
    Problem,
    Refused,
    answer,
    bad_request,
    body,
    encode,
    iso,
    new_uuid,
    not_found,
)
from integration_sdk.sandbox._records import DataSet, listed
from integration_sdk.sandbox._routes import route, wrong_method
from integration_sdk.sandbox._schemas import (
    DATA_TYPES,
    Company,
    Connection,
    describe,
    list_name,
    option_name,
)
from integration_sdk.sandbox._service import FREE_COMPANIES, Service

C = "/companies/{companyId}"
K = C + "/connections/{connectionId}"
BANK = "bankAccounts/{accountId}/bankTransactions"
LONGEST_TIMEOUT, FREE_SYNC_HOURS = 2**31 - 1, 24
PDF = Answer(200, b"%PDF-1.4\n%%EOF\n", content_type="application/pdf")
_FLAGS = {None, "true", "false", "True", "False"}


# Assumed: the update's options ("not shown") as in 2021.
@route(
    f"GET {K}/dataTypes/{{dataType}}/options/POST",
    f"GET {K}/dataTypes/{{dataType}}/options/PUT",
    f"GET {K}/dataTypes/{BANK}/options/POST",
    dialect="document",
)
@route(f"GET {K}/options/{{dataType}}", f"GET {K}/options/{BANK}", dialect="published")
def get_options(service: Service, call: Call) -> Answer:
    shape = service.shape(_connection(service, call), _pushed_type(service, call, option_name))
    return answer(describe(shape, published=service.settings.is_published))


@route(
    f"POST {K}/push/{{dataType}}",
    f"PUT {K}/push/{{dataType}}/{{recordId}}",
    f"DELETE {K}/push/{{dataType}}/{{recordId}}",
    f"POST {K}/push/{BANK}",
)
def push(service: Service, call: Call) -> Answer:
    if call.method == "PUT" and call.param("forceUpdate") not in _FLAGS:
        raise bad_request("forceUpdate", "forceUpdate is true or false")
    return _push(service, call, call.method)


@route(
    f"POST {K}/push/{{dataType}}/{{recordId}}/attachment",
    f"POST {K}/push/bills/{{recordId}}/attachments",  # only bills spell it so
    f"DELETE {K}/push/{{dataType}}/{{recordId}}/attachments/{{attachmentId}}",
)
def attach(service: Service, call: Call) -> Answer:
    """Attach a file: multipart with a file in a part of any name; a push operation."""
    if call.method == "DELETE":
        return _push(service, call, "DETACH")
    head = f"Content-Type: {call.headers.get('Content-Type', '')}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + call.body)
    if not any(part.get_filename() is not None for part in message.walk()):
        raise bad_request("file", "an attachment is sent as multipart/form-data, with a file")
    call.names.setdefault("dataType", "bills")
    return _push(service, call, "ATTACH")


@route(f"GET {C}/push")
def list_pushes(service: Service, call: Call) -> Answer:
    company, until = _company(service, call), call.now - call.world.list_lag
    recorded = service.ledger.of_company(company.id, until=until)
    if call.param("orderBy") != "requestedOnUtc":
        recorded = recorded[::-1]
    ordered = {"requestedOnUtc", "-requestedOnUtc"}
    return listed(call, recorded, service.row, ordered=ordered)


@route(f"GET {C}/push/{{pushOperationKey}}")
def get_push(service: Service, call: Call) -> Answer:
    key = call.names["pushOperationKey"]
    operation = service.ledger.find(_company(service, call).id, key)
    if operation is None:
        raise not_found(f"there is no push {key}")
    return Answer(200, service.row(operation))


@route("GET /companies")
def list_companies(service: Service, call: Call) -> Answer:
    companies = list(service.companies.values())
    if call.param("orderBy") == "-modifiedDate":
        companies.reverse()
    return listed(call, companies, _row, ordered={"modifiedDate", "-modifiedDate"})


@route("POST /companies")
def create_company(service: Service, call: Call) -> Answer:
    name, description = _naming(call.json_object())
    if service.settings.free_plan and len(service.companies) >= FREE_COMPANIES:
        message = f"Company limit exceeded: the free plan holds {FREE_COMPANIES} companies"
        problem = Problem("Company", message, "CreateCompany")
        raise Refused(402, "Company validation exception: company limit exceeded", [problem])
    company = Company(new_uuid(service.chance), name, call.now, description)
    service.companies[company.id] = company
    return answer(company.body())


@route(f"GET {C}", f"PUT {C}", f"DELETE {C}")
@route(f"PATCH {C}", dialect="published")  # today's generated clients change a company so
def company(service: Service, call: Call) -> Answer:
    """One company; PUT: its name and description; PATCH keeps what is left out; DELETE: 204."""
    found = _company(service, call)
    if call.method == "DELETE":
        del service.companies[found.id]
        return Answer(204)
    if call.method != "GET":
        before = {"name": found.name, "description": found.description}
        body = (before if call.method == "PATCH" else {}) | call.json_object()
        found.name, found.description = _naming(body)
    return answer(found.body())


@route(f"GET {C}/connections")
def list_connections(service: Service, call: Call) -> Answer:
    return listed(call, _company(service, call).connections, _row)


@route(f"GET {K}")
def get_connection(service: Service, call: Call) -> Answer:
    return answer(_connection(service, call).body())


@route("POST /profile/syncSettings")
def set_sync_settings(service: Service, call: Call) -> Answer:
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
    f"GET {K}/data/{{dataType}}",
    f"GET {K}/data/{BANK}",
    f"GET {K}/data/custom/{{custom}}",
    f"GET {C}/data/bankAccounts",
    f"GET {C}/data/bankAccounts/{{accountId}}/transactions",
)
def list_records(service: Service, call: Call) -> Answer:
    if "custom" in call.names:
        return listed(call, [], encode)
    return _records(service, call).answer(call)


@route(
    f"GET {C}/data/{{dataType}}/{{recordId}}",
    f"GET {K}/data/{{dataType}}/{{recordId}}",
    f"GET {C}/data/bankAccounts/{{recordId}}",
)
def get_record(service: Service, call: Call) -> Answer:
    row = _records(service, call).get(call.names["recordId"])
    if row is None:
        raise not_found(f"there is no record {call.names['recordId']}")
    return Answer(200, row)


@route(f"GET {C}/data/invoices/{{recordId}}/pdf")
def get_pdf(service: Service, call: Call) -> Answer:
    call.names["dataType"] = "invoices"
    get_record(service, call)
    return PDF


@route(
    f"GET {K}/data/{{dataType}}/{{recordId}}/attachments",
    f"GET {K}/data/{{dataType}}/{{recordId}}/attachments/{{attachmentId}}",
    f"GET {K}/data/{{dataType}}/{{recordId}}/attachments/{{attachmentId}}/download",
)
def get_attachments(service: Service, call: Call) -> Answer:
    """What was attached to a record through the connection: all of it, one file, its bytes."""
    connection, names = _connection(service, call), call.names
    wanted = connection.id, names["dataType"], names["recordId"], "ATTACH", "Success"
    found = {
        one.key: {"id": one.key, "dateCreated": iso(one.end)}
        for one in service.ledger.of_company(connection.company_id)
        if (one.connection, one.data_type, one.record_id, one.verb, one.status) == wanted
    }
    if "attachmentId" not in names:
        return answer({"attachments": list(found.values())})
    if names["attachmentId"] not in found:
        raise not_found(f"there is no attachment {names['attachmentId']}")
    is_file = call.segments[-1] == "download"
    return PDF if is_file else answer(found[names["attachmentId"]])


@route(f"GET {C}/data/info")
def get_info(service: Service, call: Call) -> Answer:
    return answer({"companyName": _company(service, call).name, "baseCurrency": "GBP"})


@route(f"POST {C}/data/all")
def refresh_all(service: Service, call: Call) -> Answer:
    connection = service.connection(call.names["companyId"])
    for kind in DATA_TYPES:
        service.refresh(connection, option_name(kind))
    return Answer(204)


@route(f"POST {C}/data/queue/{{dataType}}")
def refresh(service: Service, call: Call) -> Answer:
    """Refresh one data set, through the connection named by ``connectionId=``, or the first."""
    kind, named = list_name(call.names["dataType"]), call.param("connectionId")
    if kind not in DATA_TYPES:
        raise not_found(f"there is no data type {kind}")
    connection = service.connection(call.names["companyId"], named)
    return answer(service.refresh(connection, option_name(kind)).body(call.now))


@route(f"GET {C}/dataStatus")
def get_data_status(service: Service, call: Call) -> Answer:
    """The state of each data set, by data type; none for a company that is not linked."""
    company = _company(service, call)
    latest = {one.data_type: one for one in service.refreshes_of(company)}
    states = {}
    for name in map(option_name, DATA_TYPES if company.connections else ()):
        one = latest.get(name)
        shown = one.body(call.now) if one else {"status": "Complete", "id": None}
        is_done = shown["status"] == "Complete"
        states[name] = body(
            "status",
            data_type=name,
            status=shown["status"],
            synced=iso(one.ends if one and is_done else company.created),
            latest=shown["id"],
            successful=shown["id"] if is_done else None,
        )
    return answer(states)


@route(f"GET {C}/data/history", f"GET {C}/data/history/{{datasetId}}")
def get_history(service: Service, call: Call) -> Answer:
    refreshes = service.refreshes_of(_company(service, call))
    if "datasetId" not in call.names:
        return listed(call, refreshes, lambda one: encode(one.body(call.now)))
    for one in refreshes:
        if one.id == call.names["datasetId"]:
            return answer(one.body(call.now))
    raise not_found(f"there is no data set {call.names['datasetId']}")


def _company(service: Service, call: Call) -> Company:
    return service.company(call.names["companyId"])


def _connection(service: Service, call: Call) -> Connection:
    return service.connection(call.names["companyId"], call.names["connectionId"])


def _records(service: Service, call: Call) -> DataSet:
    names = call.names
    kind, connection = list_name(names.get("dataType", "bankAccounts")), names.get("connectionId")
    place = "company" if connection is None else "connection"
    if kind == "bankAccounts" and connection is None:
        _check_not_removed(service, call)
    elif kind not in DATA_TYPES or DATA_TYPES[kind].place not in {place, "both"}:
        # The public service has each type at one address.
        raise not_found(f"there is no data type {kind} below a {place}")
    return service.data_set(names["companyId"], kind, connection, names.get("accountId"))


def _check_not_removed(service: Service, call: Call) -> None:
    # "After the removal date, calls to legacy bank endpoints return 404 with the error body
    # (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)."
    removed = service.settings.legacy_removed
    if not isinstance(removed, bool):
        removed = datetime.fromtimestamp(call.now, UTC).date() > removed
    if removed:
        raise Refused(404)


def _push(service: Service, call: Call, verb: str) -> Answer:
    connection = _connection(service, call)
    kind = _pushed_type(service, call, list_name)
    if connection.status != "Linked":
        # Assumed: the document lists 403 without a scenario.
        raise Refused(403, f"Forbidden: the connection is {connection.status}")
    verbs = DATA_TYPES[kind].verbs if kind in DATA_TYPES else frozenset()
    wanted = "ATTACH" if verb == "DETACH" else verb
    if service.settings.is_published and verbs and wanted not in verbs:
        raise wrong_method(call.method, {each for each in verbs if each in {"PUT", "DELETE"}})
    if verb in {"POST", "PUT"}:
        call.json_object()
    operation = service.push(
        connection,
        kind,
        verb,
        call.body,
        record_id=call.names.get("recordId"),
        account_id=call.names.get("accountId"),
        timeout_minutes=call.whole("timeoutInMinutes", LONGEST_TIMEOUT),
        world=call.world,
    )
    # "200 is the code used when the push operation was created, and the platform's own 202 or
    # 200 may differ from it."
    return Answer(200, service.row(operation))


def _pushed_type(service: Service, call: Call, spell: Callable[[str], str]) -> str:
    """Return the data type of the path; in the published dialect 404 if *spell* spells it else.

    "options and operations say `chartOfAccounts`, the push path says `accounts`."
    """
    name = call.names.get("dataType")
    if name is None:
        return "bankTransactions"
    if name == "bankTransactions" and "push" in call.segments:
        raise not_found(f"they are pushed to {BANK}")
    if service.settings.is_published and name != spell(name):
        raise not_found(f"the data type {spell(name)} is not called {name} here")
    return name


def _row(thing: Company | Connection) -> bytes:
    return encode(thing.body())


def _naming(body: dict[str, Any]) -> tuple[str, str]:
    name, description = body.get("name"), body.get("description") or ""
    if not isinstance(name, str) or not name.strip():
        raise bad_request("Name", "a company needs a name", "CreateCompany")
    if not isinstance(description, str):
        raise bad_request("Description", "a description is a text", "CreateCompany")
    return name, description
