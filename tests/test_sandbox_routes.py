"""The sandbox has every address that the SDK calls, in each dialect."""

from __future__ import annotations

from collections import defaultdict

import pytest

from integration_sdk import Dialect
from tests.sandbox_support import serving


@pytest.mark.parametrize("name", ["document", "published"])
async def test_every_route_of_a_dialect_is_answered(
    name: str,
) -> None:
    """What is asked about may be missing, or refused; the address and the method are there."""
    dialect = Dialect.document() if name == "document" else Dialect.published()
    async with serving(companies=1, invoices=1, dialect=name) as http:
        company = http.sandbox.companies[0]
        known = {"companyId": company.id, "connectionId": company.connections[0].id}
        names = defaultdict(lambda: "none", known)
        unanswered = []
        for operation, route in dialect.routes.items():
            special = operation.removeprefix("push.attach.")  # a route of one data type
            names["dataType"] = "invoices" if special == operation else special
            reply = await http.call(route.method, route.path.format_map(names))
            if reply.status == 405 or "no such address" in reply.text:
                unanswered.append(operation)

    assert not unanswered
