"""Pushing: options, create, update, delete, attach, and the state of pushes.

Source: "Push options"; "Push a record (create)"; "Monitor pushes (polling)". Assumed: whatever
the document says is "not shown" there is as published.
"""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from math import inf

from integration_sdk.sandbox._call import Answer, Call, Refused, answer, bad_request, not_found
from integration_sdk.sandbox._calls.account import connection_of
from integration_sdk.sandbox._calls.paging import listed
from integration_sdk.sandbox._companies import Connection
from integration_sdk.sandbox._pushes import options
from integration_sdk.sandbox._pushes.catalogue import list_name, option_name
from integration_sdk.sandbox._pushes.operation import Operation

LONGEST_TIMEOUT = 2**31 - 1


async def get_options(call: Call) -> Answer:
    """Return the push options of the connection for this data type."""
    shape = call.service.shape(connection_of(call), _spelt(call, option_name))
    return answer(options.describe(shape, published=call.service.settings.published))


async def create(call: Call) -> Answer:
    """``POST .../push/{dataType}``: a push operation, normally Pending."""
    return _push(call, "POST")


async def update(call: Call) -> Answer:
    """``PUT .../push/{dataType}/{recordId}``: the same for an existing record."""
    if call.param("forceUpdate") not in {None, "true", "false", "True", "False"}:
        raise bad_request("forceUpdate", "forceUpdate is true or false")
    return _push(call, "PUT")


async def delete(call: Call) -> Answer:
    """``DELETE .../push/{dataType}/{recordId}``: no body; a push operation."""
    return _push(call, "DELETE")


async def attach(call: Call) -> Answer:
    """``POST .../push/{dataType}/{recordId}/attachment``: multipart with a ``file``."""
    _check_file(call)
    return _push(call, "ATTACH")


async def attach_to_bill(call: Call) -> Answer:
    """``POST .../push/bills/{recordId}/attachments``: the same; only bills spell it so."""
    call.names["dataType"] = "bills"
    return await attach(call)


async def list_pushes(call: Call) -> Answer:
    """``GET /companies/{companyId}/push``: the most recent first.

    Assumed: path and parameters ("not shown") as published.
    """
    service = call.service
    company = service.company(call.names["companyId"])
    until = call.now - call.world.list_lag if call.world.list_lag else inf
    recorded = service.ledger.of_company(company.id, until=until)
    if call.param("orderBy") != "requestedOnUtc":
        recorded = recorded[::-1]
    wording, ordered = service.wording, {"requestedOnUtc", "-requestedOnUtc"}
    return listed(call, recorded, wording.row, rare=wording.rare, ordered=ordered)


async def get_push(call: Call) -> Answer:
    """``GET /companies/{companyId}/push/{pushOperationKey}``."""
    company = call.service.company(call.names["companyId"])
    operation = call.service.ledger.find(company.id, call.names["pushOperationKey"])
    if operation is None:
        raise not_found(f"there is no push {call.names['pushOperationKey']}")
    return _told(call, operation)


def _push(call: Call, verb: str) -> Answer:
    connection = connection_of(call)
    _check_open(connection)
    if verb in {"POST", "PUT"}:
        call.json_object()
    operation = call.service.push(
        connection,
        _spelt(call, list_name),
        verb,
        call.body,
        record_id=call.names.get("recordId"),
        timeout_minutes=call.whole("timeoutInMinutes", LONGEST_TIMEOUT),
        world=call.world,
    )
    return _told(call, operation)


def _spelt(call: Call, spell: Callable[[str], str]) -> str:
    """Return the data type of the path; in the published dialect 404 if *spell* spells it else.

    "options and operations say `chartOfAccounts`, the push path says `accounts`."
    """
    name = call.names["dataType"]
    if call.service.settings.published and name != spell(name):
        raise not_found(f"the data type {spell(name)} is not called {name} here")
    return name


def _told(call: Call, operation: Operation) -> Answer:
    # "200 is the code used when the push operation was created, and the platform's own 202 or
    # 200 may differ from it."
    return Answer(200, call.service.wording.row(operation))


def _check_open(connection: Connection) -> None:
    # Assumed: the document lists 403 without a scenario.
    if connection.status != "Linked":
        raise Refused(403, f"Forbidden: the connection is {connection.status}")


def _check_file(call: Call) -> None:
    kind = call.headers.get("Content-Type", "")
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    parts = BytesParser().parsebytes(head + call.body).get_payload()
    named = [_field_name(part) for part in parts] if isinstance(parts, list) else []
    if "file" not in named:
        raise bad_request("file", "an attachment is sent as multipart/form-data, field file")


def _field_name(part: object) -> object:
    if not isinstance(part, Message):
        return None
    return part.get_param("name", header="content-disposition")
