"""What the sandbox refuses: the call, the status, and the item at fault, with the documented body.

Source: "Resources and their fields", Error body; "Errors", Other rules 1; "Pagination"; "Limits".
"""

from __future__ import annotations

import re

import pytest

from tests.support.sandbox_support import serving

pytestmark = pytest.mark.virtual_time

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# The call | its bodies, or what stands behind its "=" | the status, and the item at fault.
REFUSED = r"""
There is no such address, or no such thing
GET /nowhere | | 404
GET //companies | | 404
POST /companies// | | 404
GET /companies/unknown | | 404
GET /companies/{id}%2Fpush | | 404
GET {company}/data/widgets | | 404
GET {company}/data/bankTransactions | | 404
GET {company}/data/invoices/unknown | | 404
GET {company}/data/bankAccounts | | 404
GET {company}/push/unknown | | 404
GET {company}/connections/unknown | | 404
GET {company}/connections/unknown/dataTypes/invoices/options/POST | | 404
GET {at}/dataTypes/widgets/options/POST | | 404
GET {at}/options/widgets | | 404
GET {at}/data/bankAccounts/unknown | | 404
GET {at}/data/bankAccounts/unknown/bankTransactions | | 404
POST {at}/push/widgets | {} | 404
POST {other}/push/invoices | {} | 404
An address without this method
DELETE /companies | | 405
PATCH {at}/push/invoices | | 405
POST {company}/data/invoices | | 405
GET /profile/syncSettings | | 405
PUT /_page/faults | [] | 405
POST /_page/about | {} | 405
"Maximum page size 5000"; pages are counted from 1
GET /companies?pageSize= | 5001 ; 0 ; -1 ; ten ; ; 1.5 | 400 pageSize
GET /companies?page= | 0 ; 999999999999999999999999999 ; %C2%B2 | 400 page
A company needs a name
POST /companies | {} ; {"name": ""} ; {"name": 7} ; {"name": "  "} | 400 Name
POST /companies | {"name": "x", "description": 1} | 400 Description
PUT {company} | {} | 400 Name
`{clientId, settings:[{dataType, syncSchedule (hours), ...}]}`
POST /profile/syncSettings | [] | 400 body
POST /profile/syncSettings | {"settings": {}} ; {"settings": [1]} | 400 settings
POST /profile/syncSettings | {"syncSchedule": "daily"} ; {"syncSchedule": true} | 400 syncSchedule
POST /profile/syncSettings | {"syncSchedule": -1} ; {"syncSchedule": 1.5} | 400 syncSchedule
POST /profile/syncSettings | {"settings": [{"syncSchedule": -1}]} | 400 syncSchedule
A push is a JSON object, its deadline an integer
POST {at}/push/invoices?timeoutInMinutes= | 0 ; -1 ; soon ; 1.5 ; 2147483648 | 400 timeoutInMinutes
PUT {at}/push/invoices/x?forceUpdate= | maybe | 400 forceUpdate
POST {at}/push/invoices/x/attachment | {} | 400 file
POST {at}/push/invoices | ; { ; [] ; "x" ; {"a":NaN} ; {"a":1e99999999999999999999} | 400 body
The page
POST /_page/faults | {} ; [ ; [{"fault": "earthquake"}] ; [{"fault": 1}] | 400 faults
DELETE /_page/faults | {} ; [1] | 400 faults
POST /_page/advance | {"seconds": -1} ; {"seconds": 0} ; {"seconds": "60"} | 400 seconds
POST /_page/advance | {"seconds": true} ; {"seconds": 86401} | 400 seconds
POST /_page/online | {"companyId": "x", "connectionId": "y"} | 404
POST /_page/elsewhere | {} | 404
"""
ODD_BODIES = [
    b"\xff",
    b'{"a":"\xff"}',
    b"[" * 100_000,
    b'{"lineItems":' + b"[" * 600 + b"]" * 600 + b"}",
]


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_what_is_refused_says_why(dialect: str) -> None:
    """ "Every error body carries correlationId", one of its own; nothing has changed by it."""
    calls = [("POST {at}/push/invoices", body, "400 body") for body in ODD_BODIES]
    for row in REFUSED.splitlines():
        if "|" in row:
            call, values, wanted = row.split("|")
            calls += [(call.strip(), each.strip().encode(), wanted) for each in values.split(";")]
    seen = set()
    async with serving(dialect=dialect) as http:
        sandbox, other = http.sandbox, http.sandbox.companies[1].id
        before, kept = sandbox.clock.now(), sandbox.faults.latency(0)
        paths = {"company": http.company, "id": http.first.id, "at": http.at()}
        paths["other"] = f"/companies/{other}/connections/{http.connection().id}"
        for call, value, wanted in calls:
            status, *item = wanted.split()
            method, path = re.sub(r"\{(\w+)\}", lambda name: paths[name[1]], call).split()
            url, sent = (path + value.decode(), b"{}") if path.endswith("=") else (path, value)
            headers = {"Content-Type": "application/json"}
            reply = await http.call(method, url, data=sent or None, headers=headers)
            body = reply.body

            assert reply.status == body["statusCode"] == int(status), call
            assert {"service", "error", "correlationId"} <= set(body)
            assert (body["canBeRetried"], body["detailedErrorCode"]) == ("Unknown", 0)
            assert ("Allow" in reply.headers) == (status == "405")
            assert [each["itemId"] for each in body.get("validation", {}).get("errors", ())] == item
            assert UUID.fullmatch(body["correlationId"])
            seen.add(body["correlationId"])

        assert len(seen) == len(calls)
        assert (sandbox.pushes, sandbox.sync_settings, list(sandbox.faults)) == ([], None, [kept])
        assert (len(sandbox.companies), sandbox.clock.now() - before < 60) == (3, True)
