"""What came of a transmission means: every cell of the table, and what those do who ask it; then
the rules of sending again: pauses, the budget, ``Retry-After`` and quotas.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import RetryPolicy
from integration_sdk._http import CallOptions, statuses
from integration_sdk._http.hints import UNIX_TIMES_BEGIN, read_quota, read_retry_after
from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.responses import Response, read_error
from integration_sdk._http.retry import RetryBudget
from integration_sdk._http.retry import pause as pause_of
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


# Those who ask; they follow no redirect


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
    """It is sent once, the key goes nowhere else, and the error says where to point base_url: a
    refusal, if the redirect says that the address took nothing.
    """
    async with serving(always(answer(status, Location=to))) as (server, session):
        for request in (write(), read()):
            response = await session.send(request, ONE_CALL)
            error = read_error(request, response)
            assert error.in_doubt is (in_doubt and request.method == "POST")
            assert "this address redirects to" in str(error)
            assert "set base_url=" in str(error)
            assert "login" not in str(error), "its path may hold what is secret"

    assert len(server.requests) == 2


# Sending again


NOW = 1_700_000_000.0
JITTERS = st.floats(0, 1, exclude_max=True)


@given(
    st.floats(0, 10), st.floats(0, 10), st.floats(0, 30), st.lists(JITTERS, min_size=1, max_size=20)
)
def test_pauses_are_drawn_below_a_doubling_limit(
    base: float, throttled_base: float, cap: float, draws: list[float]
) -> None:
    """Full jitter: between 0 and the limit, which doubles up to the cap; never a hot loop, nor
    below what the service asks for; and growth has an end.
    """
    policy = RetryPolicy(base=base, throttled_base=throttled_base, cap=cap)
    for number, draw in enumerate(draws):
        throttled = number % 2 == 1
        limit = min(cap, (throttled_base if throttled else base) * 2**number)
        pause = policy.pause(number, draw.__mul__, throttled=throttled)
        assert pause == pytest.approx(max(0.01, limit * draw))
        assert pause_of(10**6, first=base, cap=cap, jitter=draw.__mul__, floor=40.0) == 40.0


def test_an_outage_costs_a_tenth_more_at_most() -> None:
    """Beyond a full budget of 100, there is one repetition for ten successes."""
    budget = RetryBudget()
    assert sum(budget.spend() for _ in range(200)) == 100
    for _ in range(70):
        budget.earn()
    assert sum(budget.spend() for _ in range(200)) == 7


@given(st.floats() | st.text(max_size=40))
def test_any_number_is_a_floor_or_nothing(said: float | str) -> None:
    """Negative is zero; what is no finite number says nothing; 31 years are a Unix time."""
    told = read_retry_after({"Retry-After": str(said)}, NOW)

    if isinstance(said, str):
        assert told is None or told >= 0
    else:
        since = NOW if said >= UNIX_TIMES_BEGIN else 0.0
        assert told is None or told == max(0.0, said - since)


@given(st.integers(-(10**6), 10**8), st.integers(-(10**6), 10**6))
def test_a_date_counts_from_the_services_clock(seconds: int, off: int) -> None:
    """An HTTP date means the seconds until it, however far our clock is *off*."""
    moment, date = (datetime.fromtimestamp(NOW + add, UTC) for add in (seconds, 0))
    named = {"Retry-After": format_datetime(moment, usegmt=True)}
    dated = named | {"Date": format_datetime(date, usegmt=True)}

    assert read_retry_after(named, NOW) == max(0, seconds)
    assert read_retry_after(dated, NOW + off) == max(0, seconds)


def test_the_quota_is_read_in_every_form() -> None:
    """``Reset`` may be Unix time, seconds from now, or ISO 8601."""
    moment = datetime.fromtimestamp(NOW + 60, UTC)
    forms = [str(int(NOW + 60)), "60", "60.0", moment.isoformat()]
    for form in forms:
        said = {"Limit": "1000", "Remaining": "0", "Reset": form}
        quota = read_quota({f"X-Rate-Limit-{name}": text for name, text in said.items()}, NOW)
        assert quota is not None
        assert (quota.limit, quota.remaining, quota.reset) == (1000, 0, moment)
