"""dlt's RESTClient with its paginator for links in the answer's JSON."""

# mypy: disable-error-code="import-not-found"
# It lives in an environment of its own.

from __future__ import annotations

from collections.abc import Iterator

from dlt.sources.helpers.rest_client import RESTClient
from dlt.sources.helpers.rest_client.paginators import JSONLinkPaginator

from benchmarks.peers._frame import COMPANY, Job, reads


def items(job: Job) -> Iterator[object]:
    client = RESTClient(
        base_url=job.base_url,
        paginator=JSONLinkPaginator(next_url_path="_links.next.href"),
        data_selector="results",
    )
    params = {"page": 1, "pageSize": job.page_size}
    for page in client.paginate(f"/companies/{COMPANY}/data/invoices", params=params):
        yield from page


if __name__ == "__main__":
    reads(items)
