"""A bug anywhere in the coordinator or the poller: nobody waits for what cannot come."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import logging
import sys
import tracemalloc  # noqa: F401 - pytest would import it amid the first of many to tell of
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import count, repeat
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest
from attrs import Factory, define

import integration_sdk
from benchmarks.virtual_service import Answer, Asked, Service, no_answer, refusal
from integration_sdk._outcome import PushOutcome
from integration_sdk.dialect import Dialect
from integration_sdk.errors import IntegrationError, PollingStopped, PushingStopped
from integration_sdk.models import OutcomeStatus, PushRequest, PushStatus
from integration_sdk.testing import VirtualTimeLoop
from tests.support.push_support import Connect, breaking, collect, coordinator, request, requests

POLL = "GET /companies/c-0/push"


class Bug(Exception):
    """What the tests raise inside the SDK."""


def once(at: int) -> Any:
    """Return a middleware that breaks at this read, and only then; the first is no poll."""
    calls = count(1)

    def breaks(request: str) -> Bug | None:
        return Bug() if request.startswith(POLL) and next(calls) == at else None

    return breaking(breaks)


def crashes(caplog: pytest.LogCaptureFixture) -> list[BaseException]:
    """Return the exceptions that were logged as errors."""
    logged = [one for one in caplog.records if one.levelno >= logging.ERROR and one.exc_info]
    return [one.exc_info[1] for one in logged if one.exc_info and one.exc_info[1]]


# Through what a user supplies


@pytest.mark.virtual_time
@pytest.mark.parametrize("at", [2, 3, 4, 6])
async def test_a_broken_poller_ends_waits_and_polls_again(
    connect: Connect, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    """Outcomes and waiters name the cause, which is logged once; the next push is polled."""
    service = Service(lambda _: 20.0)
    client = await connect(service, middlewares=[once(at)])
    held = service.add(record={"number": 9})
    async with asyncio.timeout(3600), client.coordinator() as pushes:
        waiting = asyncio.create_task(client.wait(held.key, company_id=held.company))
        outcomes = await collect(pushes.run(requests(3)))
        with pytest.raises(PollingStopped) as stopped:
            await waiting
        again = await (await pushes.submit(request(4)))

    assert {type(one.error) for one in outcomes} == {PollingStopped}
    assert {one.status for one in outcomes} == {OutcomeStatus.PENDING}
    assert again.status is OutcomeStatus.SUCCESS
    assert crashes(caplog) == [stopped.value.__cause__]


class BrokenDialect(Dialect):
    """Breaks where a push has timed out, so in a background task of the coordinator."""

    def __getattribute__(self, name: str) -> Any:
        if name == "timed_out_may_take_effect":
            raise Bug(name)
        return super().__getattribute__(name)


@pytest.mark.virtual_time
@pytest.mark.parametrize("durable", [False, True])
async def test_a_broken_coordinator_ends_every_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, durable: bool
) -> None:
    """Everybody hears of the cause, which is logged once, and nothing more is sent."""
    service = Service(lambda record: 2.0 + 20.0 * record["number"])
    service.status = lambda record: "Success" if record["number"] else "TimedOut"
    options = {
        "dialect": BrokenDialect(name="broken"),
        "journal": tmp_path / "pushes.db" if durable else None,
    }
    outcomes: list[PushOutcome] = []
    async with asyncio.timeout(3600), coordinator(service, **options) as pushes:
        alone = await pushes.submit(request(3))
        with pytest.raises(PushingStopped, match="Bug") as stopped:
            await collect(pushes.run(requests(3)), outcomes)
        outcomes.append(await alone)
        with pytest.raises(PushingStopped):
            await pushes.submit(request(4))

    assert [type(one.error) for one in outcomes] == [PushingStopped] * 4
    assert {one.status for one in outcomes} == {OutcomeStatus.PENDING}
    assert all(one.key for one in outcomes)
    assert crashes(caplog) == [stopped.value.__cause__]
    assert service.count("push") == 4


@pytest.mark.virtual_time
@pytest.mark.parametrize("status", PushStatus)
async def test_a_push_of_any_status_gets_an_outcome(status: PushStatus) -> None:
    """A final status is its outcome; any other is waited for, as long as the caller wants."""
    service = Service(lambda _: 2.0, status=lambda _: status.value)
    async with asyncio.timeout(3600), coordinator(service) as pushes:
        outcome = await (await pushes.submit(request(), wait=600.0))

    not_final = {"PENDING": "PENDING", "UNKNOWN": "PENDING"}
    assert outcome.status == not_final.get(status.name, status.name)


# Anywhere: one call of one function is broken, while pushes of every fate are under way

HOME: Final = Path(integration_sdk.__file__).parent
ROOMS: Final = tuple(str(HOME / room) for room in ("_push", "_store"))
EVER: Final = 1e6
"""Virtual seconds after which a wait counts as one that never ends."""


@define
class Saboteur:
    """Counts the calls of the SDK's functions, and breaks one of them.

    breaks: The function, by file and line, and the number of its call; None breaks none.
    """

    breaks: tuple[str, int] | None = None
    calls: Counter[str] = Factory(Counter)
    broke: bool = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (name := name_of(frame.f_code)):
            return
        self.calls[name] += 1
        if (name, self.calls[name]) == self.breaks:
            self.broke = True
            sys.setprofile(None)
            raise Bug(name)

    @property
    def breakable(self) -> list[str]:
        """What was called, except for what hears of crashes itself."""
        return [name for name in self.calls if not name.endswith(SUPERVISORS)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


@cache
def name_of(code: CodeType) -> str:
    """Return file, line and name; empty for what is in no room."""
    if not code.co_filename.startswith(ROOMS):
        return ""
    return f"{Path(code.co_filename).relative_to(HOME)}:{code.co_firstlineno} {code.co_qualname}"


def odd_fates(asked: Asked) -> Answer | None:
    """Lose the answer to one push, and refuse two."""
    fates: dict[int, Answer] = {
        5: refusal(400),
        6: no_answer(),
        7: refusal(503),
    }
    return fates.get(json.loads(asked.body)["number"]) if asked.body else None


async def a_day(journal: Path | None) -> list[PushOutcome | IntegrationError]:
    """Push, wait and decide in every way there is; return what each wait came to."""
    service = Service(lambda record: 1.0 + record["number"] % 4, answer=odd_fates)
    service.status = lambda record: "Failed" if record["number"] == 3 else "Success"
    ends: list[PushOutcome | IntegrationError] = []

    async def see(waiting: Any) -> None:
        try:
            ends.append(await waiting)
        except IntegrationError as problem:
            ends.append(problem)

    async def submit(asked: PushRequest, wait: float | None = None) -> None:
        push = await pushes.submit(asked, wait=wait)
        await push

    async def run() -> None:
        ends.extend([outcome async for outcome in pushes.run(named(range(10)))])

    def named(numbers: Any) -> Iterator[PushRequest]:
        return (request(number, companies=2, reference=f"r-{number}") for number in numbers)

    async with (
        service.client() as client,
        client.coordinator(journal=journal, patience=2.0, max_open=8) as pushes,
    ):
        held = service.add(record={"number": 2})
        twin, slow = named([20, 23])
        await asyncio.gather(
            *(see(run()), see(submit(twin)), see(submit(twin)), see(submit(slow, wait=0.5))),
            *(
                see(client.wait(held.key, company_id="c-0")),
                see(client.wait(held.key, company_id="c-0")),
            ),
        )
    return ends


def lived(breaks: tuple[str, int] | None, journal: Path | None) -> tuple[Saboteur, Any]:
    """Live through a day with a bug; return what was called, and what the day came to."""
    saboteur = Saboteur(breaks)

    async def day() -> Any:
        with saboteur.at_work():
            async with asyncio.timeout(EVER):
                return await a_day(journal)

    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            ends = runner.run(day())
    except (Bug, IntegrationError) as problem:
        ends = problem
    return saboteur, ends


SUPERVISORS: Final = (
    *("Tasks._ended", "Tasks._begun", "_report", "supervised.<locals>.call"),
    *("Run._work", "_Wait.ended", "_Wait.lost"),
    *("SqliteThread._start", "SqliteThread._worked", "_Batch.tell"),
)
"""What hears of crashes: nobody hears of theirs."""
SHELL: Final = tuple(
    f"_push/{name}.py:"
    for name in (
        *("companies", "coordinator", "dispatcher", "handles", "poller", "push", "run"),
        *("search", "sending", "tasks", "wire"),
    )
)
"""The modules that wait for something."""
IN_MID_CALL: Final = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""A bug that strikes between a coroutine's creation and its first step leaves it unawaited."""


def check_that_nobody_hangs(
    caplog: pytest.LogCaptureFixture,
    calls: list[tuple[str, int]],
    journals: Iterator[Path | None],
) -> None:
    for call in calls:
        caplog.clear()
        saboteur, ends = lived(call, next(journals))
        assert saboteur.broke or not isinstance(ends, Exception), call
        assert isinstance(ends, Exception) or len(ends) >= 5, call  # five waits, and a run's
        broke = [one for one in caplog.messages if "failed (" in one]
        assert len(broke) <= 2, call  # of the poller, and of the coordinator
    del ends
    caplog.clear()  # whose tracebacks hold what was left unawaited
    gc.collect()  # here, where that is expected


@IN_MID_CALL
@pytest.mark.parametrize("part", range(4))
def test_a_bug_in_the_coordinator_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture, part: int
) -> None:
    """Whatever breaks, every wait ends: with an outcome, or an error that says what happened."""
    usual, _ = lived(None, None)
    names = [name for name in usual.breakable if name.startswith(SHELL)]
    calls = [(name, -(-usual.calls[name] // 2)) for name in names[part::4]]
    check_that_nobody_hangs(caplog, calls, repeat(None))


@pytest.mark.long
@IN_MID_CALL
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("part", range(8))
def test_a_bug_anywhere_leaves_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: int, durable: bool
) -> None:
    """The same in the rules and the journal, at the first, a middle and the last call of each."""
    journals = (tmp_path / f"{n}.db" if durable else None for n in count())
    usual, _ = lived(None, next(journals))
    calls = [
        (name, at)
        for name in usual.breakable[part::8]
        for at in sorted({1, -(-usual.calls[name] // 2), usual.calls[name]})
    ]
    check_that_nobody_hangs(caplog, calls, journals)


# Each handler of a state or an event is removed


def handlers() -> list[tuple[str, int]]:
    """Return each ``case`` of the push side that says what to do, as module and line.

    Not the last ones, which catch what has no handler.
    """
    return [
        (path.stem, case.pattern.lineno)
        for path in sorted((HOME / "_push").glob("*.py"))
        for match in ast.walk(ast.parse(path.read_text()))
        if isinstance(match, ast.Match)
        for case in match.cases
        if not isinstance(case.pattern, ast.MatchAs)
    ]


class Without(ast.NodeTransformer):
    """Removes the ``case`` of a line."""

    def __init__(self, line: int) -> None:
        self._line = line

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.cases = [case for case in node.cases if case.pattern.lineno != self._line]
        return self.generic_visit(node) if node.cases else ast.Pass()


def functions_of(tree: ast.Module, path: Path) -> dict[str, CodeType]:
    """Return the code of each function and method, by qualified name."""
    found: dict[str, CodeType] = {}
    left = [compile(tree, str(path), "exec")]
    while left:
        code = left.pop()
        found[code.co_qualname] = code
        left += [one for one in code.co_consts if isinstance(one, CodeType)]
    return found


@contextmanager
def without_handler(module: str, line: int) -> Iterator[None]:
    """Run the function of *module* that has a ``case`` in that line as it would be without it."""
    path = HOME / "_push" / f"{module}.py"
    tree = ast.parse(path.read_text())
    whole = functions_of(tree, path)
    bereft = functions_of(ast.fix_missing_locations(Without(line).visit(tree)), path)
    (name,) = (name for name in whole if whole[name].co_code != bereft[name].co_code)
    function = attrgetter(name)(import_module(f"integration_sdk._push.{module}"))
    before, function.__code__ = function.__code__, bereft[name]
    try:
        yield
    finally:
        function.__code__ = before


@IN_MID_CALL
@pytest.mark.parametrize(("module", "line"), handlers())
def test_a_handler_that_is_missing_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture, module: str, line: int
) -> None:
    """What nobody handles is an error that ends every wait, at the latest."""
    with without_handler(module, line):
        _, ends = lived(None, None)

    assert isinstance(ends, IntegrationError | Bug) or len(ends) >= 5
    del ends
    caplog.clear()
    gc.collect()
