"""Errors say what happened and what to do, and travel anywhere."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import Client, Connection, Problem, ProblemCode, errors
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response, check, read_error
from integration_sdk._outcome import PushOutcome
from integration_sdk._records.codec import encode_value
from integration_sdk.models import (
    ErrorBody,
    OutcomeStatus,
    PushOperation,
    PushRequest,
    PushStatus,
    Validation,
    ValidationItem,
)
from tests.support.session_support import KEY, breaks_after, error_body, raw_server, unused_port
from tests.support.session_support import answer as answer_of

READ = Request(operation="companies.list", method="GET", path="/companies")
NOON = datetime(2022, 1, 1, 12, tzinfo=UTC)
ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
TREE = [kind for kind in ALL if issubclass(kind, errors.IntegrationError)]


def body(*items: dict[str, str], status: int = 402, error: str = "no") -> dict[str, Any]:
    own = {"statusCode": status, "service": "ClientApi", "error": error, "correlationId": "7f3a"}
    return own | {"validation": {"errors": list(items), "warnings": []}}


def answer(status: int, content: Any = None, **headers: str) -> Response:
    raw = content if isinstance(content, bytes) else encode_value(content or body(status=status))
    return Response(
        status=status,
        body=raw,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        received_at=NOON.timestamp(),
        attempts=3,
    )


OF_STATUS = {
    400: (errors.BadRequest, "Correct the request"),
    401: (errors.Unauthorized, "api_key= or INTEGRATION_SDK_API_KEY"),
    402: (errors.PaymentRequired, "the plan"),
    403: (errors.Forbidden, "API key may not"),
    404: (errors.NotFound, "ids and the data type"),
    405: (errors.MethodNotAllowed, "method is not allowed"),
    409: (errors.Conflict, "company.wait_until_ready"),
    429: (errors.TooManyRequests, "later"),
    500: (errors.InternalServerError, "later"),
    **dict.fromkeys((502, 504), (errors.ApiError, "later")),
    503: (errors.ServiceUnavailable, "later"),
    302: (errors.ApiError, "base_url="),
    418: (errors.ApiError, ""),
}


@pytest.mark.parametrize(("status", "expected"), OF_STATUS.items())
def test_each_status_has_its_own_error(
    status: int, expected: tuple[type[errors.ApiError], str]
) -> None:
    """ "Status codes": one class each, what is known about the call, and what to do."""
    with pytest.raises(errors.ApiError, match=rf"GET /companies answered {status}.*7f3a") as caught:
        check(evolve(READ, company_id="c"), answer(status))

    error = caught.value
    assert (type(error), expected[1] in str(error)) == (expected[0], True)
    assert (error.status, error.method, error.path) == (status, "GET", "/companies")
    assert (error.attempts, error.correlation_id) == (3, "7f3a")
    assert error.body.service == "ClientApi"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (body({"itemId": "Company", "message": "no"}), errors.CompanyLimitReached),
        (body(error="Company validation: company limit exceeded"), errors.CompanyLimitReached),
        (body({"validatorName": "SyncSettings"}), errors.SyncScheduleNotAllowed),
        (body({"message": "Your free account expired"}), errors.AccountExpired),
        (body(), errors.PaymentRequired),
        (b"<html>", errors.PaymentRequired),
    ],
)
def test_the_kinds_of_402_are_told_apart(content: Any, kind: type[errors.ApiError]) -> None:
    """ "Account limit errors (402)": the body states which limit."""
    error = read_error(READ, answer(402, content))

    assert type(error) is kind
    assert isinstance(error, errors.PaymentRequired)


@pytest.mark.parametrize(
    ("header", "at"),
    [
        ("90", datetime(2022, 1, 1, 12, 1, 30, tzinfo=UTC)),
        ("1e300", datetime.max.replace(tzinfo=UTC)),
        ("soon", None),
    ],
)
def test_error_says_when_to_come_back(header: str, at: datetime | None) -> None:
    """Retry-After becomes one aware moment; nonsense becomes None."""
    error = read_error(READ, answer(429, Retry_After=header))

    assert error.retry_at == at
    assert at is None or f"{at:%H:%M:%S} UTC" in str(error)


HTML = b"<html>"
REPLIES: dict[str, tuple[bytes, type[errors.IntegrationError]]] = {
    "a page for an answer": (answer_of(200, HTML), errors.MalformedResponse),
    "what is not HTTP": (b"hello\r\n\r\n", errors.MalformedResponse),
    "half an answer": (answer_of(200, HTML)[:-2], errors.AnswerLost),
    "no answer": (b"", errors.AnswerLost),
    "a proxy's 503": (answer_of(503, HTML), errors.ServiceUnavailable),
    "the service's 500": (answer_of(500, error_body(500)), errors.InternalServerError),
    "the service's 503": (answer_of(503, error_body(503)), errors.ServiceUnavailable),
    "the service's 400": (answer_of(400, error_body(400)), errors.BadRequest),
}


def books(client: Client) -> Connection:
    return client.company("c").connection("b")


DOORS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "push": lambda client: books(client).push("invoices", {}),
    "update": lambda client: books(client).update("invoices", "r", {}),
    "delete": lambda client: books(client).delete("invoices", "r"),
    "attach": lambda client: books(client).attach("invoices", "r", b"x", filename="a"),
    "create": lambda client: client.companies.create(name="A"),
    "request": lambda client: client.request("POST", "/anything", json={}),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_failed_write_says_whether_it_may_have_been_carried_out(
    door: str, reply: str
) -> None:
    """By an attribute, which says what the message says, whatever class the error has; what each
    status means is in ``test_statuses``. A read is never in doubt: it changes nothing.
    """
    content, kind = REPLIES[reply]
    in_doubt = reply not in {"the service's 400", "the service's 503"}
    async with (
        raw_server(breaks_after(content)) as server,
        Client(KEY, server.base_url, retry=None) as client,
        Client(KEY, server.base_url, retry=None) as other,  # which no gate holds back
    ):
        with pytest.raises(kind) as caught:
            await DOORS[door](client)
        with pytest.raises(kind) as of_read:
            await other.company("c").pushes.get("k")

    assert caught.value.in_doubt is in_doubt
    assert ("may have been carried out" in str(caught.value)) is in_doubt
    assert not of_read.value.in_doubt
    assert "carried out" not in str(of_read.value)


async def test_what_was_not_sent_is_not_in_doubt() -> None:
    """Refused by the SDK, turned away, or without a connection."""
    async with Client(KEY, f"http://localhost:{unused_port()}") as client:
        for record, kind in (({"a": object()}, errors.InvalidRecord), ({}, errors.NotSent)):
            with pytest.raises(kind) as caught:
                await books(client).push("invoices", record)
            assert not caught.value.in_doubt
    assert errors.PushInDoubt("who knows").in_doubt


def test_a_message_is_short_however_long_the_answer() -> None:
    """Messages go into logs and journals, by the thousand; what they leave out is in the body."""
    items = [{"itemId": f"line {number}", "message": "x" * 100} for number in range(300)]
    content = body(*items, status=400, error="y" * 20_000) | {"correlationId": "z" * 20_000}

    error = read_error(READ, answer(400, content))

    assert len(str(error)) < 3_000
    assert str(error).endswith("refused again as it stands.")
    assert len(error.reasons) == 300
    assert error.correlation_id == "z" * 20_000


@pytest.mark.parametrize("odd", [b"1e400", rb'"\ud800"'], ids=["too large", "half a character"])
async def test_a_push_that_cannot_be_read_in_full_still_has_its_key(odd: bytes) -> None:
    """The caller can wait for it, in place of looking for it in a list."""
    body = b'{"pushOperationKey": "k", "companyId": "c", "status": "Pending", "data": {"a": %b}}'
    async with (
        raw_server(breaks_after(answer_of(200, body % odd))) as server,
        Client(KEY, server.base_url) as client,
    ):
        operation = await books(client).push("invoices", {})

    assert (operation.key, operation.company_id, operation.status) == ("k", "c", "Pending")
    assert operation.data is None
    assert "cannot be read" in str(operation.error_message)


def make(kind: type[errors.IntegrationError]) -> errors.IntegrationError:
    """One error with every fact that its class takes."""
    facts: dict[str, Any] = {
        "method": "POST", "path": "/companies", "attempts": 2, "correlation_id": "7f3a",
        "status": 402, "body": ErrorBody(error="no"), "retry_at": NOON, "replacement": "/new",
        "limit": 3, "page": 4, "index": 5, "item_path": "$.a", "raw": b"{}", "problems": ("p",),
        "in_doubt": True, "intent": "i", "candidates": ("k",),
        "operation": BARE,
    }  # fmt: skip
    taken = {name for name in facts if hasattr(kind, name)}
    return kind("what happened", **{name: facts[name] for name in facts if name in taken})


@pytest.mark.parametrize("kind", TREE)
def test_errors_survive_pickle_and_copy(kind: type[errors.IntegrationError]) -> None:
    """Workers in other processes see the same error with the same facts; there are no others. Each
    class has a docstring, and is in the drawing at the head of ``errors``.
    """
    assert f" {kind.__name__}" in str(errors.__doc__) or kind is errors.IntegrationError
    assert kind.__doc__
    error = make(kind)
    error.cursor = "c1"

    for back in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 (our own bytes)
        assert type(back) is kind
        assert str(back) == "what happened"
        assert vars(back) == vars(error)
    with pytest.raises(TypeError, match=f"{kind.__name__} has no attribute 'statuss'"):
        kind("no", statuss=3)


BAD = Validation(
    errors=(
        ValidationItem(item_id="total", message="must be positive"),
        ValidationItem(message="late"),
    )
)
BARE = PushOperation(push_operation_key="k", company_id="company", status=PushStatus.FAILED)
FAILED = evolve(BARE, validation=BAD)
PROBLEM = Problem("total", ProblemCode.REQUIRED, "is required")


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        (errors.PushFailed("failed", operation=FAILED), ("total: must be positive", "late")),
        (errors.BadRequest("400", body=ErrorBody(validation=BAD)), tuple(map(str, BAD.errors))),
        (errors.InvalidRecord("not sent", problems=[PROBLEM]), ("total: is required",)),
        (errors.PushFailed("failed", operation=evolve(BARE, error_message="off")), ("off",)),
        (errors.PushFailed("timed out", operation=BARE), ("timed out",)),
        (errors.InvalidRecord("no JSON"), ("no JSON",)),
        (errors.NotSent("no way"), ("no way",)),
    ],
)
def test_an_error_names_what_is_wrong_one_by_one(
    error: errors.IntegrationError, reasons: tuple[str, ...]
) -> None:
    """Whoever found it, the problems of a record are texts; without any, it is the message."""
    request = PushRequest("company", "connection", "invoices", {})
    outcome = PushOutcome(status=OutcomeStatus.REJECTED, request=request, error=error)

    assert error.reasons == outcome.reasons == reasons
    assert evolve(outcome, status=OutcomeStatus.SUCCESS, error=None).reasons == ()


@pytest.mark.parametrize("record", [{"iban": "GB00 1"}, ErrorBody(error="GB00 1"), "GB00 1"])
def test_no_repr_shows_a_record(record: Any) -> None:
    """An outcome in a log names the push, not the bank details in it."""
    request = PushRequest("company", "connection", "suppliers", record, reference="r-1")
    pushed = evolve(FAILED, data={"iban": "GB00 1"})
    outcome = PushOutcome(status=OutcomeStatus.FAILED, request=request, operation=pushed)

    assert "GB00" not in repr(outcome)
    assert "r-1" in repr(outcome)
    assert "data=<1 fields>" in repr(outcome)
