"""The server's own limit: receive every page without decoding it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.peers._frame import Job, reads
from benchmarks.peers.raw_socket import bodies


def items(job: Job) -> Iterator[object]:
    for body in bodies(job):
        yield from body[: job.page_size]


if __name__ == "__main__":
    reads(items)
