"""What many write by hand: a POST in a retry decorator. It is measured beside the SDK.

Source of the pattern: the README of ``backoff``, with ``aiohttp`` as it comes.
"""

from __future__ import annotations

import base64

import aiohttp
import backoff

from integration_sdk.sandbox import Company, Sandbox
from tests.proofs.proof_cut import Case, Seen, invoice, service
from tests.proofs.proof_proxy import CutProxy

TRIES = 4


@backoff.on_exception(backoff.expo, aiohttp.ClientError, max_tries=TRIES, factor=0.01)
async def create(session: aiohttp.ClientSession, url: str, record: object) -> object:
    """POST a record, and again when that fails."""
    async with session.post(url, json=record) as answer:
        answer.raise_for_status()
        return await answer.json()


async def run_case(sandbox: Sandbox, company: Company, case: Case) -> Seen:
    """Push one record over a line that breaks, by hand."""
    port = int(sandbox.base_url.rpartition(":")[2])
    credential = base64.b64encode(sandbox.api_key.encode()).decode()
    headers = {"Authorization": f"Basic {credential}"}
    async with (
        CutProxy(port, case.cut) as proxy,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        connection = company.connections[0]
        path = f"/companies/{company.id}/connections/{connection.id}/push/invoices"
        await create(session, proxy.base_url + path, invoice(case.name))
    operations = [one for one in sandbox.pushes if one.company == company.id]
    return Seen(case, (), len(proxy.pushes), operations)


async def duplicates(cases: list[Case]) -> int:
    """Push records one by one and count those that exist more than once."""
    async with service(len(cases), published=False) as sandbox:
        seen = [
            await run_case(sandbox, company, case)
            for company, case in zip(sandbox.companies, cases, strict=True)
        ]
    return sum(len(one.operations) > 1 for one in seen)
