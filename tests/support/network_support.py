"""What the tests of proxies and certificates share: an HTTP proxy, and two sides of TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from yarl import URL

from tests.support.session_support import Peer, message

HERE = Path(__file__).parent / "tls"
PRIVATE_CA = str(HERE / "ca.pem")


def of_the_server() -> ssl.SSLContext:
    """Return the TLS settings of a server on localhost, whose CA nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / "localhost.pem")
    return context


def trusting() -> ssl.SSLContext:
    """Return the TLS settings of a client that knows this CA."""
    return ssl.create_default_context(cafile=PRIVATE_CA)


async def as_a_proxy(peer: Peer) -> None:
    """Pass each request on to the host in its first line, or everything after a CONNECT."""
    while True:
        request = await peer.receive()
        method, target, rest = request.split(b" ", 2)
        if method == b"CONNECT":
            await _tunnel(target.decode(), peer.reader, peer.writer)
            return
        url = URL(target.decode(), encoded=True)
        of_service, to_service = await asyncio.open_connection(url.host, url.port)
        to_service.write(b"%s %s %s" % (method, url.raw_path_qs.encode(), rest))
        peer.write(await message(of_service))
        to_service.close()


async def _tunnel(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = target.rpartition(":")
    of_service, to_service = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    try:
        await asyncio.gather(_pour(reader, to_service), _pour(of_service, writer))
    finally:
        to_service.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()
