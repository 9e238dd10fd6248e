"""Companies, connections and sync settings.

Source: "Other endpoints that appear". Assumed: the bodies ("not shown") and the routes beyond
POST /companies, GET /companies and POST /profile/syncSettings are the published ones.
"""

from __future__ import annotations

from typing import Any

from integration_sdk.sandbox._call import Answer, Call, answer, bad_request, encode
from integration_sdk.sandbox._calls.paging import listed
from integration_sdk.sandbox._companies import Company, Connection, new_uuid
from integration_sdk.sandbox._limits import schedules


async def list_companies(call: Call) -> Answer:
    """``GET /companies``: a page of companies, in the order of their creation."""
    return listed(call, list(call.service.companies.values()), _row)


async def create_company(call: Call) -> Answer:
    """``POST /companies``: a company without connections; 402 beyond the plan's limit."""
    service, body = call.service, call.json_object()
    name = _name(body)
    service.plan.check_companies(len(service.companies))
    company = Company(new_uuid(service.chance), name, call.now, _description(body))
    service.companies[company.id] = company
    return answer(company.body())


async def get_company(call: Call) -> Answer:
    """``GET /companies/{companyId}``."""
    return answer(_company(call).body())


async def update_company(call: Call) -> Answer:
    """``PUT /companies/{companyId}``: another name or description."""
    return _changed(_company(call), call.json_object())


async def change_company(call: Call) -> Answer:
    """``PATCH /companies/{companyId}``: the same; fields that are left out keep their value."""
    company = _company(call)
    kept = {"name": company.name, "description": company.description}
    return _changed(company, kept | call.json_object())


async def delete_company(call: Call) -> Answer:
    """``DELETE /companies/{companyId}``: 204, and the company is gone."""
    del call.service.companies[_company(call).id]
    return Answer(204)


async def list_connections(call: Call) -> Answer:
    """``GET .../connections``: a page of the company's connections."""
    return listed(call, _company(call).connections, _row)


async def get_connection(call: Call) -> Answer:
    """``GET .../connections/{connectionId}``."""
    return answer(connection_of(call).body())


async def set_sync_settings(call: Call) -> Answer:
    """``POST /profile/syncSettings``: 204; 402 for a schedule that the plan does not allow."""
    settings = call.json_object()
    _check_settings(settings)
    call.service.plan.check_schedule(settings)
    call.service.sync_settings = settings
    return Answer(204)


def connection_of(call: Call) -> Connection:
    """Return the connection that the path names, or 404."""
    return call.service.connection(call.names["companyId"], call.names["connectionId"])


def _row(thing: Company | Connection) -> bytes:
    return encode(thing.body())


def _company(call: Call) -> Company:
    return call.service.company(call.names["companyId"])


def _changed(company: Company, body: dict[str, Any]) -> Answer:
    company.name, company.description = _name(body), _description(body)
    return answer(company.body())


def _name(body: dict[str, Any]) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not name.strip():
        raise bad_request("Name", "a company needs a name", "CreateCompany")
    return name


def _description(body: dict[str, Any]) -> str:
    description = body.get("description") or ""
    if not isinstance(description, str):
        raise bad_request("Description", "a description is a text", "CreateCompany")
    return description


def _check_settings(settings: dict[str, Any]) -> None:
    entries = settings.get("settings", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request("settings", "settings must be a list of objects", "SyncSettings")
    for hours in schedules(settings):
        if isinstance(hours, bool) or not isinstance(hours, int) or hours < 0:
            raise bad_request("syncSchedule", "syncSchedule is a number of hours", "SyncSettings")
