"""The limit: a blocking socket and msgspec. Receive a page, split it, decode each item."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from benchmarks.peers._frame import COMPANY, Job, reads


class Envelope(msgspec.Struct):
    """The parts of a page that a reader needs."""

    total: int = msgspec.field(name="totalResults")
    results: list[msgspec.Raw]


def items(job: Job) -> Iterator[object]:
    split = msgspec.json.Decoder(Envelope).decode
    decode = msgspec.json.Decoder().decode
    for body in bodies(job):
        for raw in split(body).results:
            yield decode(raw)


def bodies(job: Job) -> Iterator[memoryview]:
    """Yield the pages' bytes."""
    read_total = msgspec.json.Decoder(Total).decode
    url = urlsplit(job.base_url)
    pages, number = 1, 1
    with socket.create_connection((url.hostname, url.port)) as line:
        while number <= pages:
            target = f"/companies/{COMPANY}/data/invoices?page={number}&pageSize={job.page_size}"
            body = _receive(line, target)
            if number == 1:
                pages = -(-read_total(body).total // job.page_size)
            yield body
            number += 1


class Total(msgspec.Struct):
    """How many items there are."""

    total: int = msgspec.field(name="totalResults")


def _receive(line: socket.socket, target: str) -> memoryview:
    line.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    headers, _, start = line.recv(65536).partition(b"\r\n\r\n")
    length = int(headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray(length)
    body[: len(start)] = start
    view, filled = memoryview(body), len(start)
    while filled < length:
        filled += line.recv_into(view[filled:])
    return view


if __name__ == "__main__":
    reads(items)
