"""The vendor's SDKs in a loop: one to push, the other to poll."""

# mypy: disable-error-code="import-not-found"
# They live in an environment of their own.

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator

import codataccounting
from codat_platform import CodatPlatform
from codat_platform.models import operations as platform_operations
from codat_platform.models import shared as platform_shared
from codataccounting.models import operations, shared

from benchmarks.peers._frame import FINAL, POLL_EVERY, Job, Known, pushes


def push(job: Job) -> Known:
    credential = f"Basic {b64encode(job.api_key.encode()).decode()}"
    reader = CodatPlatform(
        security=platform_shared.Security(auth_header=credential), server_url=job.base_url
    )
    known: Known = {}
    still_open = list(_create_all(job, credential))
    while True:
        for _, key, status in still_open:
            if status in FINAL:
                known[key] = time.time()
        still_open = [one for one in still_open if one[2] not in FINAL]
        if not still_open:
            return known
        time.sleep(POLL_EVERY)
        still_open = [
            (company, key, _status(reader, company, key)) for company, key, _ in still_open
        ]


def _create_all(job: Job, credential: str) -> Iterator[tuple[str, str, str]]:
    security = shared.Security(auth_header=credential)
    accounting = codataccounting.CodatAccounting(security=security, server_url=job.base_url)
    for company, connection, record in job.records():
        answer = accounting.invoices.create(
            operations.CreateInvoiceRequest(
                company_id=company,
                connection_id=connection,
                invoice=shared.Invoice.from_dict(record),
            )
        ).create_invoice_response
        yield company, answer.push_operation_key, answer.status.value


def _status(reader: CodatPlatform, company: str, key: str) -> str:
    operation = reader.push_data.get_operation(
        request=platform_operations.GetPushOperationRequest(
            company_id=company, push_operation_key=key
        )
    )
    return str(operation.status.value)


if __name__ == "__main__":
    pushes(push)
