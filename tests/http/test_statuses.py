"""What came of a transmission means: every cell of the table, and what those do who ask it."""

from __future__ import annotations

import pytest

from integration_sdk import RetryPolicy
from integration_sdk._http import CallOptions, statuses
from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.responses import Response, read_error
from integration_sdk._http.statuses import Meaning, Scope
from integration_sdk._push.table import Event, SendResult, classify
from tests.support.session_support import (
    ONE_CALL,
    VirtualService,
    always,
    answer,
    error_body,
    read,
    serving,
    virtual_session,
    write,
)

DONE, REFUSED, AGAIN = Meaning.DONE, Meaning.REFUSED, Meaning.AGAIN
IN_DOUBT, GIVE_UP = Meaning.IN_DOUBT, Meaning.GIVE_UP

# Written from the interface document and PUSH-PROTOCOL, not from the table.
READS = {
    DONE: set(range(200, 300)),
    REFUSED: {400, 401, 402, 403, 404, 405},
    AGAIN: {429, 500, 502, 503, 504},
}
OWN_WORD_ON_WRITES = {
    DONE: set(range(200, 300)),
    REFUSED: {400, 401, 402, 403, 404, 405, 409, 413, 415, 422},
    AGAIN: {429, 503},
}
STATUSES = range(100, 600)


def meant(column: dict[Meaning, set[int]], status: int, otherwise: Meaning) -> Meaning:
    return next((meaning for meaning, said in column.items() if status in said), otherwise)


@pytest.mark.parametrize("is_own", [True, False])
def test_every_status_means_what_the_document_says(is_own: bool) -> None:
    """For reads whoever answers; for writes, only the service's own word excludes an effect."""
    for status in STATUSES:
        own = meant(OWN_WORD_ON_WRITES, status, IN_DOUBT)
        if own is not DONE and not is_own:
            own = IN_DOUBT
        if status in (307, 308):  # the address took nothing, whatever sent the redirect
            own = REFUSED
        of_read = statuses.of_answer(Safety.READ, status, is_own=is_own)
        assert of_read is meant(READS, status, GIVE_UP)
        assert statuses.of_answer(Safety.WRITE, status, is_own=is_own) is own, status


def test_whom_a_status_concerns() -> None:
    """It says whether others are held back, a key is renewed, or a smaller page may do."""
    whom = {
        Scope.RECORD: {400, 413, 415, 422},
        Scope.KEY: {401},
        Scope.ACCOUNT: {402},
        Scope.LOAD: {429, 503},
        Scope.GATEWAY: {502, 504},
    }
    for status in STATUSES:
        expected = next((one for one, said in whom.items() if status in said), Scope.REQUEST)
        assert statuses.scope_of(status) is expected, status


# Those who ask


PROXYS = (b"", b"<html>", b"[]", b"null", b'{"statusCode": 429}', b'{"statusCode": 1, "error": ""}')


@pytest.mark.virtual_time
@pytest.mark.parametrize("request_", [read(), write()], ids=["read", "write"])
@pytest.mark.parametrize("is_own", [True, False])
async def test_a_session_sends_again_what_the_table_says(request_: Request, is_own: bool) -> None:
    """Each status alike: again means again, and everything else is the caller's."""
    options = CallOptions(retry=RetryPolicy(attempts=2, throttled_base=0))
    for status in STATUSES:
        reply = Response(status=status, body=error_body(status) if is_own else b"<html>")
        service = VirtualService(lambda *_, reply=reply: reply)
        await virtual_session(service).send(request_, options)
        meaning = statuses.of_answer(request_.safety, status, is_own=is_own)
        assert len(service.log) == (2 if meaning is AGAIN else 1), status


@pytest.mark.parametrize("body", [*PROXYS, error_body(400)])
def test_one_judgement_of_a_push(body: bytes) -> None:
    """Pushed alone or by the coordinator: what is in doubt for one is in doubt for the other."""
    is_own = body == error_body(400)
    for status in [*range(100, 200), *range(300, 600)]:
        alone = read_error(write(), Response(status=status, body=body))
        result = SendResult(
            Phase.ANSWERED,
            status=status,
            body={"statusCode": 1, "correlationId": "c"} if is_own else None,
        )
        managed = classify(result, key_is_known=False)
        assert alone.in_doubt == ("may have been carried out" in str(alone))
        assert alone.in_doubt == (managed is Event.LOST), status


# Redirects are not followed; those that say that the address took nothing are refusals


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
    async with serving(always(answer(status, Location=to))) as (server, session):
        for request in (write(), read()):
            response = await session.send(request, ONE_CALL)
            error = read_error(request, response)
            assert error.in_doubt is (in_doubt and request.method == "POST")
            assert "this address redirects to" in str(error)
            assert "set base_url=" in str(error)
            assert "login" not in str(error), "its path may hold what is secret"

    assert len(server.requests) == 2
