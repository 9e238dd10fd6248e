"""What `help()` says about outcomes and doubts is complete, and its example runs."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from pathlib import Path
from textwrap import dedent
from typing import Any, assert_type

import pytest
from msgspec import structs

from integration_sdk import Coordinator
from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane, Result, State, Verdict
from integration_sdk.errors import NotSent, PushInDoubt
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import DOCUMENT, coordinator, request
from tests.support.virtual_service import Answer, Service, no_answer, refusal


@pytest.mark.parametrize("status", OutcomeStatus)
def test_help_explains_each_outcome(status: OutcomeStatus) -> None:
    """A sentence for each value, where people look: help() shows no comments of members."""
    told = " ".join(pydoc.plain(pydoc.render_doc(OutcomeStatus)).replace("|", " ").split())

    assert re.search(rf"\b{status}: \w+ [^:]{{20,}}", told)


@pytest.mark.virtual_time
@pytest.mark.parametrize("found_later", [False, True])
async def test_the_example_of_decide_runs(tmp_path: Path, found_later: bool) -> None:
    """As it stands: over pushes that are still searched for, and over those that are decided."""
    told = inspect.getdoc(Coordinator.decide) or ""
    (block,) = re.findall(r"Example::\n\n((?:    .*\n|\n)+)", told)
    code = compile(dedent(block), "decide", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    service = Service()
    lost = iter([no_answer()] * 3)

    def answer(call: Any) -> Answer | None:
        if call.kind != "push" or (error := next(lost, None)) is None:
            return None
        if found_later:
            service.carry_out(call)
        return error

    service.answer = answer
    async with coordinator(service, journal=tmp_path / "pushes.db") as pushes:
        submitted = [await pushes.submit(request(number)) for number in range(3)]
        assert len(pushes.in_doubt) == 3
        running = eval(code, {"pushes": pushes, "PushInDoubt": PushInDoubt})  # noqa: S307 (our own docstring)
        assert inspect.isawaitable(running)
        await running
        assert not pushes.in_doubt
        expected = OutcomeStatus.SUCCESS if found_later else OutcomeStatus.IN_DOUBT
        assert {(await one).status for one in submitted} == {expected}
    assert len(service.by_key) == 3
    assert {held.record["number"] for held in service.by_key.values()} == {0, 1, 2}


async def read(pushes: Coordinator, requests: list[PushRequest]) -> None:
    """The example of `PushOutcome`; mypy reads it."""
    async for outcome in pushes.run(requests):
        if outcome.status is OutcomeStatus.SUCCESS:
            print(outcome.reference, outcome.key)
        elif isinstance(outcome.error, PushInDoubt):  # IN_DOUBT
            print("decide about", outcome.error.intent, outcome.error.candidates)
        else:
            print(outcome.reference, outcome.status, outcome.reasons)


async def decided(pushes: Coordinator, doubt: PushInDoubt) -> None:
    """As type checkers see it, an intent can be decided about without further ado."""
    assert_type(doubt.intent, str)
    await pushes.decide(doubt.intent, "abandon")


@pytest.mark.virtual_time
async def test_the_example_of_outcomes_is_typed_and_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What its docstring says is what is read here."""
    told = inspect.getdoc(PushOutcome) or ""
    (block,) = re.findall(r"Example::\n\n((?:    .*\n|\n)+)", told)
    read_here = inspect.getsource(read)
    assert block.rstrip() in read_here
    service = Service(answer=lambda call: no_answer() if b"1" in call.body else None)
    async with coordinator(service) as pushes:
        await read(pushes, [request(number) for number in (1, 2)])
        (doubt,) = pushes.in_doubt
        (key,) = service.by_key
        assert set(capsys.readouterr().out.splitlines()) == {
            f"decide about {doubt.intent} ()",
            f"None {key}",
        }
        error = (await doubt).error
        assert isinstance(error, PushInDoubt)
        await decided(pushes, error)
        assert not pushes.in_doubt


@pytest.mark.parametrize("candidates", [(), ("k-1",), ("k-1", "k-2", "k-3", "k-4")], ids=len)
@pytest.mark.parametrize("verdict", Verdict)
def test_a_doubt_says_what_the_lists_have_shown(
    verdict: Verdict, candidates: tuple[str, ...]
) -> None:
    """Candidates first; that no list shows it only where lists were read that would have."""
    made = new_row(Lane("c", "b", "invoices"), b"{}", id="i")
    row = structs.replace(made, state=State.DOUBT, verdict=verdict, candidates=candidates)

    told = str(outcomes.in_doubt(request(), row).error)

    sentences = {
        f"It may be one of {len(candidates)}: {', '.join(candidates[:3])}. ": bool(candidates),
        "The list of pushes does not show it. ": not candidates and verdict is Verdict.ABSENT,
        "The list of pushes does not settle whether it exists. ": not candidates
        and verdict is not Verdict.ABSENT,
    }
    assert {one: one in told for one in sentences} == sentences


@pytest.mark.virtual_time
@pytest.mark.parametrize("breaks", ["no list", "an old push gone"])
async def test_a_list_that_proves_nothing_is_said_to(breaks: str) -> None:
    """Nobody is told that no list shows a push, if the lists could not have shown it."""
    service = Service()
    lost = False

    def answer(call: Any) -> Any:
        nonlocal lost
        if call.kind == "push":
            lost = True
            return no_answer()
        if lost and call.kind == "list":
            service.pushes.clear()
            return refusal(404) if breaks == "no list" else None
        return None

    async with coordinator(service) as pushes:
        old = request()
        service.add(old.company_id, old.connection_id, old.data_type, {"number": 7})
        service.answer = answer
        outcome = await (await pushes.submit(request(1)))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert "The list of pushes does not settle whether it exists. " in str(outcome.error)


@pytest.mark.parametrize("http", [None, 400])
@pytest.mark.parametrize("result", [None, *Result])
@pytest.mark.parametrize("state", State)
def test_every_recorded_state_has_an_outcome_to_show(
    state: State, result: Result | None, http: int | None
) -> None:
    """REJECTED only of what is not there, PENDING only of what goes on, else IN_DOUBT."""
    if (state is State.DONE) != (result is not None):
        return
    made = new_row(Lane("c", "d", "invoices"), b"{}", id="i", reference="INV-1")
    key = "key" if state is State.OPEN or result is Result.ENDED else None
    facts = {"state": state, "result": result, "key": key, "http_status": http}
    row = structs.replace(made, status="Success" if result is Result.ENDED else None, **facts)

    outcome = outcomes.standing(request(), row, DOCUMENT)

    assert outcome.key == key
    if result is Result.ENDED:
        assert outcome.status is OutcomeStatus.SUCCESS
    elif result is Result.REFUSED:
        assert outcome.status is OutcomeStatus.REJECTED
        assert isinstance(outcome.error, NotSent) == (http is None)
    elif state in {State.OPEN, State.QUEUED}:
        assert outcome.status is OutcomeStatus.PENDING
    else:
        assert outcome.status is OutcomeStatus.IN_DOUBT
