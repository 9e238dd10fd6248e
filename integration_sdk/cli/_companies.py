"""The command that lists companies and their connections."""

from __future__ import annotations

from json import dumps

from integration_sdk.cli._display import show, show_table
from integration_sdk.cli._service import FROM_ENVIRONMENT, Flag, Service


async def companies(*, json: Flag = False, service: Service = FROM_ENVIRONMENT) -> None:
    """List the companies of the account and their connections, with their ids.

    The other commands need these ids: --company and --connection of push and options, --companies
    of pull.

    Parameters
    ----------
    json
        Print the service's JSON of each company on a line, instead of a table.
    """
    rows: list[tuple[object, ...]] = []
    async with service.client() as client:
        async for company in client.companies.list():
            if json:
                show(dumps(company, default=str))
                continue
            rows.append((company.get("name", ""), company["id"], ""))
            for connection in company.get("dataConnections") or ():
                named = connection.get("platformName", ""), connection.get("status", "")
                rows.append(("  connection", connection["id"], ", ".join(filter(None, named))))
    if not json:
        show_table("Companies" if rows else "This account has no companies.", rows)
