"""The vendor's SDK for reading; it has no page iterator, so its users count pages."""

# mypy: disable-error-code="import-not-found"
# It lives in an environment of its own.

from __future__ import annotations

from collections.abc import Iterator

from codat_lending import CodatLending
from codat_lending.models import operations, shared

from benchmarks.peers._frame import COMPANY, Job, reads


def items(job: Job) -> Iterator[object]:
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


if __name__ == "__main__":
    reads(items)
