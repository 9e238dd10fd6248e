"""What `help()` says about outcomes and doubts is complete, and its example runs."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from pathlib import Path
from textwrap import dedent
from typing import assert_type

import pytest

from integration_sdk import Coordinator, OutcomeStatus, PushOutcome, PushRequest
from integration_sdk.errors import PushInDoubt
from tests.support.push_support import Fate, coordinator, fated, request, requests, statuses
from tests.support.virtual_service import Service, no_answer


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
    fate: Fate = "lost" if found_later else "swallowed"
    service = fated(fate, fate, fate)
    async with coordinator(service, journal=tmp_path / "pushes.db") as pushes:
        submitted = [await pushes.submit(one) for one in requests(3)]
        assert len(pushes.in_doubt) == 3
        running = eval(code, {"pushes": pushes, "PushInDoubt": PushInDoubt})  # noqa: S307 (our own docstring)
        assert inspect.isawaitable(running)
        await running
        assert not pushes.in_doubt
        expected = OutcomeStatus.SUCCESS if found_later else OutcomeStatus.IN_DOUBT
        assert statuses([await one for one in submitted]) == {expected: 3}
    assert sorted(held.record["number"] for held in service.by_key.values()) == [0, 1, 2]


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
