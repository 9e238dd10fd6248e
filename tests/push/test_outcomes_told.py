"""What `help()` says about outcomes and doubts is complete, and its examples run."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from integration_sdk import Coordinator, OutcomeStatus, PushOutcome
from integration_sdk.errors import PushInDoubt
from tests.support.push_support import Fate, coordinator, fated, request, requests, statuses
from tests.support.virtual_service import Service, no_answer

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("status", OutcomeStatus)
def test_help_explains_each_outcome(status: OutcomeStatus) -> None:
    """A sentence for each value, where people look: help() shows no comments of members."""
    told = " ".join(pydoc.plain(pydoc.render_doc(OutcomeStatus)).replace("|", " ").split())

    assert re.search(rf"\b{status}: \w+ [^:]{{20,}}", told)


async def run_example(of: object, **names: Any) -> None:
    """Run the example of a docstring as it stands."""
    (block,) = re.findall(r"Example::\n\n((?:    .*\n|\n)+)", inspect.getdoc(of) or "")
    code = compile(dedent(block), "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    known = {"OutcomeStatus": OutcomeStatus, "PushInDoubt": PushInDoubt}
    await eval(code, known | names)  # noqa: S307 (our own docstring)


@pytest.mark.parametrize("found_later", [False, True])
async def test_the_example_of_decide_runs(tmp_path: Path, found_later: bool) -> None:
    """Over pushes that are still searched for, and over those that are decided."""
    fate: Fate = "lost" if found_later else "swallowed"
    service = fated(fate, fate, fate)
    async with coordinator(service, journal=tmp_path / "pushes.db") as pushes:
        submitted = [await pushes.submit(one) for one in requests(3)]
        assert len(pushes.in_doubt) == 3
        await run_example(Coordinator.decide, pushes=pushes)
        assert not pushes.in_doubt
        expected = OutcomeStatus.SUCCESS if found_later else OutcomeStatus.IN_DOUBT
        assert statuses([await one for one in submitted]) == {expected: 3}
    assert sorted(held.record["number"] for held in service.by_key.values()) == [0, 1, 2]


async def test_the_example_of_outcomes_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It tells what there is from what is in doubt."""
    service = Service(answer=lambda call: no_answer() if b"1" in call.body else None)
    async with coordinator(service) as pushes:
        asked = [request(number) for number in (1, 2)]
        await run_example(PushOutcome, pushes=pushes, requests=asked)
        (doubt,) = pushes.in_doubt
        (key,) = service.by_key

    told = {f"decide about {doubt.intent} ()", f"None {key}"}
    assert set(capsys.readouterr().out.splitlines()) == told
