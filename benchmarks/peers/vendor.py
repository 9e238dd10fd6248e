"""The vendor's SDKs: one to read, one to push, one to poll. Users count pages and write loops."""

# mypy: disable-error-code="import-not-found"
# ruff: noqa: PLC0415
# They live in an environment of their own.

from __future__ import annotations

import sys
import time
from base64 import b64encode
from collections.abc import Iterator

from benchmarks.peers._frame import COMPANY, FINAL, POLL_EVERY, Job, Known, pushes, reads


def read(job: Job) -> Iterator[object]:
    from codat_lending import CodatLending
    from codat_lending.models import operations, shared

    security = shared.Security(auth_header=f"Basic {job.api_key}")
    with CodatLending(security=security, server_url=job.base_url) as codat:
        number, seen = 1, 0
        while True:
            page = codat.accounts_receivable.invoices.list(
                request=operations.ListAccountingInvoicesRequest(
                    company_id=COMPANY, page=number, page_size=job.page_size
                )
            )
            yield from page.results
            seen += len(page.results)
            number += 1
            if seen >= page.total_results:
                return


def push(job: Job) -> Known:
    import codataccounting
    from codat_platform import CodatPlatform
    from codat_platform.models import operations, shared
    from codataccounting.models import operations as pushing
    from codataccounting.models import shared as pushed

    credential = f"Basic {b64encode(job.api_key.encode()).decode()}"
    accounting = codataccounting.CodatAccounting(
        security=pushed.Security(auth_header=credential), server_url=job.base_url
    )
    platform = CodatPlatform(
        security=shared.Security(auth_header=credential), server_url=job.base_url
    )
    still_open: list[tuple[str, str, str]] = []
    for company, connection, record in job.records():
        invoice = pushed.Invoice.from_dict(record)
        answer = accounting.invoices.create(
            pushing.CreateInvoiceRequest(
                company_id=company, connection_id=connection, invoice=invoice
            )
        ).create_invoice_response
        still_open.append((company, answer.push_operation_key, answer.status.value))
    known: Known = {}
    while True:
        known |= {key: time.time() for _, key, status in still_open if status in FINAL}
        still_open = [one for one in still_open if one[2] not in FINAL]
        if not still_open:
            return known
        time.sleep(POLL_EVERY)
        for position, (company, key, _) in enumerate(still_open):
            operation = platform.push_data.get_operation(
                request=operations.GetPushOperationRequest(
                    company_id=company, push_operation_key=key
                )
            )
            still_open[position] = company, key, str(operation.status.value)


if __name__ == "__main__":
    reads(read) if sys.argv[2] == "read" else pushes(push)
