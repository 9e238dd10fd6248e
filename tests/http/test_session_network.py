"""The way to the service: proxies, certificates, and how many connections there are."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from typing import Any

import pytest
from yarl import URL

from integration_sdk import Client
from integration_sdk._http.credentials import check_proxy
from integration_sdk.errors import ConfigurationError, NotSent
from tests.support.session_support import (
    KEY,
    ONE_CALL,
    Connection,
    Peer,
    always,
    answer,
    breaks_after,
    message,
    of_the_server,
    raw_server,
    read,
    reply_of,
    session_on,
    trusting,
    write,
)

SERVICE = "https://api.example.com"
BASIC = b64encode(KEY.encode())
FAR_PROXY = "http://proxy.example.com:3128"


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


async def test_requests_go_through_the_proxy() -> None:
    """Reads and writes alike; the proxy is asked for the whole URL, with its own password."""
    async with (
        raw_server(always(answer())) as server,
        raw_server(as_a_proxy) as proxy,
        session_on(server, proxy=f"http://me:secret@127.0.0.1:{proxy.port}") as session,
    ):
        await session.send(read("/companies/a%20b"), ONE_CALL)
        await session.send(write(), ONE_CALL)
        assert len(server.requests) == len(proxy.requests) == 2

    first = proxy.requests[0]
    assert first.startswith(f"GET {server.base_url}/companies/a%20b HTTP/1.1\r\n".encode())
    assert b"\r\nProxy-Authorization: Basic " + b64encode(b"me:secret") + b"\r\n" in first
    assert "secret" not in repr(session)


@pytest.mark.parametrize("tls", [None, of_the_server()], ids=["http proxy", "https proxy"])
async def test_a_proxy_on_the_way_to_https_sees_host_and_port_alone(
    tls: ssl.SSLContext | None,
) -> None:
    """What it is asked for is a tunnel; the key and all else are encrypted to the service."""
    async with (
        raw_server(always(answer()), tls=of_the_server()) as server,
        raw_server(as_a_proxy, tls=tls) as proxy,
        Client(KEY, server.base_url, proxy=URL(proxy.base_url), ssl=trusting()) as client,
    ):
        await client.request("GET", "/secret")
        await client.request("POST", "/secret", json={"amount": 1})

        assert len(server.requests) == 2
        assert all(BASIC in request for request in server.requests)
        for asked in proxy.requests:
            assert asked.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
            assert b"uthorization" not in asked
            assert b"secret" not in asked


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        (always(answer(407, b"who are you?")), "the proxy answered 407"),
        (always(b"SSH-2.0-no proxy\r\n\r\n"), "ClientResponseError"),
        (breaks_after(b""), "ServerDisconnectedError"),
    ],
    ids=["refused", "no proxy", "closed"],
)
async def test_what_a_proxy_does_not_let_through_was_not_sent(serve: Connection, why: str) -> None:
    """Nothing of a push has left when the tunnel fails, however it does, so it is no doubt."""
    async with raw_server(serve) as proxy, session_on(SERVICE, proxy=proxy.base_url) as session:
        error = await reply_of(session, write())

    assert isinstance(error, NotSent)
    assert error.attempts == len(proxy.requests) == 3
    assert f"no way through the proxy 127.0.0.1:{proxy.port} ({why}" in str(error)


@pytest.mark.parametrize(
    "proxy",
    ["", "proxy.example.com:3128", "http://", "http://proxy:port", 3128, "ftp://me:secret@x"],
)
def test_what_is_no_http_proxy_is_refused(proxy: Any) -> None:
    """With an example of one, and without the password."""
    with pytest.raises(ConfigurationError, match=r"^proxy must look like") as caught:
        Client(KEY, SERVICE, proxy=proxy)

    assert "me:secret" not in str(caught.value)


@pytest.mark.parametrize("proxy", [FAR_PROXY, URL("https://me:secret@proxy.example.com")])
def test_a_far_proxy_never_sees_the_key(proxy: Any) -> None:
    """Without TLS to the service it would, so this goes with a proxy of this machine alone."""
    with pytest.raises(ConfigurationError, match="would see the API key") as caught:
        check_proxy(proxy, "http://localhost:8080")

    assert "secret" not in str(caught.value)
    assert check_proxy(proxy, SERVICE) == URL(proxy)
    assert check_proxy("http://[::1]:3128", "http://localhost:8080")


async def test_a_private_ca_is_trusted_on_demand() -> None:
    """By the context that is passed, for reads and writes; by default it is a failed handshake."""
    async with raw_server(always(answer()), tls=of_the_server()) as server:
        async with Client(KEY, server.base_url, ssl=trusting()) as client:
            assert await client.request("GET", "/") == {}
            assert await client.request("POST", "/", json={}) == {}
        async with Client(KEY, server.base_url, ssl=False) as careless:
            assert await careless.request("GET", "/") == {}
        assert len(server.requests) == 3
        async with Client(KEY, server.base_url, retry=None) as client:
            with pytest.raises(NotSent, match=r"Certificate.*create_default_context"):
                await client.request("GET", "/")
        assert len(server.requests) == 3
