"""Redirects are not followed; those that say that the address took nothing are refusals."""

from __future__ import annotations

import pytest

from integration_sdk._http.responses import read_error
from tests.support.session_support import (
    ONE_CALL,
    always,
    answer,
    raw_server,
    read,
    session_on,
    write,
)

ELSEWHERE = "https://service.example"


@pytest.mark.parametrize(
    ("status", "to", "in_doubt"),
    [
        (307, f"{ELSEWHERE}/login", False),
        (308, "/other", False),
        (301, f"{ELSEWHERE}/companies", False),  # the same path by https, or on another host
        (302, f"{ELSEWHERE}/companies", False),
        (301, f"{ELSEWHERE}/login", True),  # may follow a write that was carried out
        (302, "/companies", True),
        (302, "https://[broken", True),
        (303, f"{ELSEWHERE}/companies", True),
    ],
)
async def test_a_redirected_write_is_refused_or_in_doubt(
    status: int, to: str, in_doubt: bool
) -> None:
    """It is sent once, the key goes nowhere else, and the error says where to point base_url."""
    async with (
        raw_server(always(answer(status, Location=to))) as server,
        session_on(server) as session,
    ):
        for request in (write(), read()):
            response = await session.send(request, ONE_CALL)
            error = read_error(request, response)
            assert error.in_doubt is (in_doubt and request.method == "POST")
            assert "this address redirects to" in str(error)
            assert "set base_url=" in str(error)
            assert "login" not in str(error), "its path may hold what is secret"

    assert len(server.requests) == 2
