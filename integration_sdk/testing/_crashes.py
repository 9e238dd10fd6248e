"""Crash tests: a program is killed, frozen and started again, and what it leaves is judged.

A program runs in rounds. Each round begins with a fresh sandbox and an empty folder, has a few
kills, freezes and faults, and is over once the program has ended well; it is started again until
then. Round 0 is undisturbed: what it pushes is what every other round is to push. `_crash_findings`
compares.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from attrs import Factory, define, field, frozen

from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Answer, Call, Faults, Operation, Sandbox

Moment = Literal["at its start", "before", "while", "after", "between"]
Strike = Literal["killed", "frozen"]
MOMENTS: Final[dict[Moment, int]] = {
    "at its start": 1,
    "before": 4,
    "while": 4,
    "after": 4,
    "between": 4,
}
"""How likely each is. All but the first follow a request, so a slow start delays them, too."""
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MOST_PER_ROUND: Final = 5
TRIES: Final = 3
"""Undisturbed lives that end badly, one after the other, until a round is given up."""
SMALL: Final[Mapping[str, Any]] = {
    "companies": 3,
    "invoices": 500,
    "push_seconds": (0.02, 0.1),
}
PAUSE: Final = 0.2
"""Seconds before a program is started again that has ended badly by itself."""
FROZEN: Final = (0.1, 1.0)
SOON: Final = (-4.0, -2.0)
"""Powers of ten of the seconds after an answer in which a program does something with it."""
LATER: Final = {"Retry-After": "1"}
FAULTS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("lose_answer", {}),
    ("status", {"code": 429, "headers": LATER}),
    ("status", {"code": 503, "headers": LATER}),
)
"""One of these happens in three of four lives, unless others are given."""


@frozen(kw_only=True)
class Expected:
    """Files that the program writes: *path* is theirs in its folder, *key* the column of ids."""

    path: str
    data_type: str
    key: str = "id"


@frozen(kw_only=True)
class CrashPlan:
    """What is done to a program.

    Attributes:
        kills, freezes: How many, in all rounds together.
        workers: Rounds at the same time; most programs wait most of the time. One that looks for
            a lost push does so for 30 s, so a round with one takes that long.
        faults: Adds them to a sandbox; None for lost answers, 429 and 503.
        changes: Records of each expected type that change once the program has ended well; it
            is then started again, and has to notice.
        sandbox: Options of `Sandbox`.
        copies: Files and folders that the program finds in its folder.
        identity: Path of the field that tells pushed records from each other; None for all of it.
        patience: Seconds that a life may take.
    """

    kills: int = 50
    freezes: int = 10
    seed: int = 0
    workers: int = 16
    faults: Callable[[Faults], object] | None = None
    changes: int = 0
    sandbox: Mapping[str, Any] = SMALL
    copies: tuple[Path, ...] = ()
    expected: tuple[Expected, ...] = ()
    identity: str | None = None
    patience: float = 60.0

    def __attrs_post_init__(self) -> None:
        if self.kills < 0 or self.freezes < 0 or self.kills + self.freezes == 0:
            raise ConfigurationError("kills and freezes are counts, and one is above 0")
        if self.workers < 1 or self.changes < 0 or self.patience <= 0:
            raise ConfigurationError("workers is at least 1, changes 0, and patience above 0")
        if self.changes and not self.expected:
            raise ConfigurationError("changes are to be found in files: name some")


class Life(Protocol):
    """A program under way."""

    over: bool

    def kill(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    async def end(self) -> str:
        """Wait for its end; return "" if it ended well, or how it did."""


Begin = Callable[[Sandbox, Path], Awaitable[Life]]


@define(eq=False)
class Event:
    """Something that happened in a round.

    Attributes:
        at: Seconds since the round began.
        life: Whose, from 1.
        what: ``began``, ``request``, ``killed``, ``frozen`` or ``ended``.
        number: Of the request in its life, from 1.
        status: Of the answer; 0 if it was lost, None if there was none.
    """

    at: float
    life: int
    what: str
    text: str
    number: int = 0
    method: str = ""
    path: str = ""
    query: Mapping[str, str] = field(factory=dict)
    body: bytes = field(default=b"", repr=False)
    status: int | None = None


@define(eq=False)
class Round:
    """What one round came to.

    Attributes:
        stuck: Why it was given up, or "".
        operations: Every push that the service recorded, oldest first.
        companies: Names of the companies, at the end.
        books: Expected type -> company -> id -> ``modifiedDate``, in the service's order.
    """

    number: int
    folder: Path
    events: list[Event] = Factory(list)
    lives: int = 0
    stuck: str = ""
    operations: list[Operation] = Factory(list)
    companies: list[str] = Factory(list)
    books: dict[str, dict[str, dict[str, str]]] = Factory(dict)

    @property
    def requests(self) -> list[Event]:
        """The requests, in the order of their arrival."""
        return [event for event in self.events if event.what == "request"]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.events[-1].at if self.events else 0.0

    def count(self, what: str) -> int:
        """Return how many events of a kind there were."""
        return sum(event.what == what for event in self.events)


@define(eq=False)
class _Armed:
    """A strike that waits for its moment: *left* more requests that are *writes*, or are not.

    gap: Seconds from the request to the next, undisturbed.
    """

    life: Life
    strike: Strike
    moment: Moment
    writes: bool = False
    left: int = 0
    gap: float = 0.0


@define(eq=False)
class _Playing:
    """A round under way."""

    plan: CrashPlan
    begin: Begin
    chance: random.Random
    sandbox: Sandbox
    round: Round
    usual: Round | None
    """The undisturbed round; None if this is it."""
    strikes: dict[Strike, int]
    """How many of each are left; all rounds take from it."""
    allowed: int = 0
    _armed: _Armed | None = None
    _timers: list[asyncio.TimerHandle] = Factory(list)
    _requests: int = 0
    _failed: int = 0
    _began: float = Factory(lambda: asyncio.get_running_loop().time())

    async def play(self) -> None:
        """Play the round to its end."""
        self.allowed = self.chance.randint(1, MOST_PER_ROUND)
        self.sandbox.faults.add(self._watch, outermost=True)
        if self.usual is not None and self.plan.faults is not None:
            self.plan.faults(self.sandbox.faults)
        await self._until_it_ends_well()
        if self.plan.changes and not self.round.stuck:
            self._change()
            await self._until_it_ends_well()
        self._look()

    async def _until_it_ends_well(self) -> None:
        self._failed = 0
        while not self.round.stuck:
            how = await self._live()
            if how is None:
                continue
            if not how:
                return
            self._failed += 1
            if self._failed >= (TRIES if self.usual is not None else 1):
                self.round.stuck = how
            self.sandbox.faults.clear()  # what it fails by from here on is its own fault
            self.sandbox.faults.add(self._watch, outermost=True)
            await asyncio.sleep(PAUSE)

    async def _live(self) -> str | None:
        """Live one life; return how it ended, or None if it was killed."""
        life = await self.begin(self.sandbox, self.round.folder)
        self.round.lives += 1
        self._requests = 0
        self._note("began")
        if self.usual is not None and not self._failed:
            self._trouble(life, self.usual)
        try:
            async with asyncio.timeout(self.plan.patience):
                how = await life.end()
        except TimeoutError:
            how = f"it still runs after {self.plan.patience:g} seconds"
            life.kill()
            await life.end()
        while self._timers:
            self._timers.pop().cancel()
        killed, life.over, self._armed = life.over, True, None
        if killed:
            return None
        self._note("ended", how or "well")
        return how

    # What is done to a life

    def _trouble(self, life: Life, usual: Round) -> None:
        """Arm a fault and a strike for a life."""
        fault = self.chance.choice((None, *FAULTS))
        if self.plan.faults is None and fault is not None and self.allowed:
            skip = self.chance.randrange(max(1, len(usual.requests)))
            self.sandbox.faults.add_named(fault[0], **fault[1], skip=skip, times=1)
        left = {what: count for what, count in self.strikes.items() if count > 0}
        if not left or self.allowed <= 0:
            return
        self.allowed -= 1
        (strike,) = self.chance.choices(list(left), list(left.values()))
        (moment,) = self.chance.choices(list(MOMENTS), list(MOMENTS.values()))
        armed = _Armed(life, strike, moment)
        if moment == "at its start":
            self._later(self.chance.random() * usual.requests[0].at, armed)
        else:
            self._aim(armed, usual)
            self._armed = armed

    def _aim(self, armed: _Armed, usual: Round) -> None:
        """Choose a request among the first half of those that are still to come."""
        kinds = [event.method in WRITES for event in usual.requests]
        armed.writes = self.chance.choice(sorted(set(kinds)))
        same = [one for one in usual.requests if (one.method in WRITES) == armed.writes]
        done = sum((one.method in WRITES) == armed.writes for one in self.round.requests)
        armed.left = self.chance.randrange(max(2, (len(same) - done + 1) // 2))
        like = same[min(done + armed.left, len(same) - 1)]
        armed.gap = next((one.at for one in usual.events if one.at > like.at), like.at) - like.at

    def _later(self, seconds: float, armed: _Armed, when: str = "at a random moment") -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(seconds, self._strike, armed, when))

    def _strike(self, armed: _Armed, when: str) -> None:
        if armed.life.over or self.strikes[armed.strike] <= 0:
            return
        self.strikes[armed.strike] -= 1
        self._note(armed.strike, f"{armed.strike} {when}")
        if armed.strike == "killed":
            armed.life.over = True
            armed.life.kill()
        else:
            armed.life.freeze()
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(self.chance.uniform(*FROZEN), armed.life.thaw))

    async def _watch(self, call: Call, proceed: Callable[[], Awaitable[Answer]]) -> Answer:
        """Note a request, and strike where it is its moment."""
        self._requests += 1
        event = self._note("request", f"{call.method} {_ID.sub('...', call.path)}")
        event.number, event.method, event.path = self._requests, call.method, call.path
        event.query, event.body = dict(call.params), call.body
        due = self._due(event)
        named = f"request {event.number} ({event.text})"
        if due and due.moment == "before":
            self._strike(due, f"before {named} was handled")
            if due.strike == "killed":
                return Answer(dropped=True)
        answer = await proceed()
        event.status = 0 if answer.dropped else answer.status
        if due and due.moment == "while":
            self._strike(due, f"while {named} was to be answered")
        elif due and due.moment == "after":
            soon = 10 ** self.chance.uniform(*SOON)
            self._later(soon, due, f"just after {named} was answered")
        elif due:
            self._later(self.chance.random() * due.gap, due)
        return answer

    def _due(self, event: Event) -> _Armed | None:
        armed = self._armed
        if armed is None or armed.writes != (event.method in WRITES):
            return None
        armed.left -= 1
        if armed.left >= 0:
            return None
        self._armed = None
        return armed

    def _note(self, what: str, text: str = "") -> Event:
        at = asyncio.get_running_loop().time() - self._began
        self.round.events.append(Event(at, self.round.lives, what, text))
        return self.round.events[-1]

    # What is looked at

    def _change(self) -> None:
        self.sandbox.clock.advance(minutes=1)
        stamp = self.sandbox.clock.now()
        stamps = dict.fromkeys(("modifiedDate", "sourceModifiedDate"), _iso(stamp))
        for data_type in {one.data_type for one in self.plan.expected}:
            for company in self.sandbox.companies:
                records = self.sandbox.data_set(company.id, data_type)
                for _ in range(min(self.plan.changes, len(records))):
                    records.edit_at(self.chance.randrange(len(records)), stamps)
        self.sandbox.clock.advance(minutes=1)

    def _look(self) -> None:
        self.sandbox.clock.advance(hours=1)  # every push that will end has ended
        self.round.operations = [one for one in self.sandbox.pushes if not one.foreign]
        self.round.companies = [company.name for company in self.sandbox.companies]
        for data_type in {one.data_type for one in self.plan.expected}:
            self.round.books[data_type] = {
                company.id: {
                    str(record["id"]): str(record.get("modifiedDate"))
                    for record in self.sandbox.data_set(company.id, data_type)
                }
                for company in self.sandbox.companies
            }


def _iso(moment: float) -> str:
    return f"{datetime.fromtimestamp(int(moment), UTC):%Y-%m-%dT%H:%M:%SZ}"


async def play(
    begin: Begin, plan: CrashPlan, folder: Path, heard: Callable[[Round], object] | None = None
) -> list[Round]:
    """Play rounds until the kills and freezes are used up; the first one is undisturbed.

    Args:
        begin: Starts the program in a folder.
        plan: What is done to it.
        folder: A folder for each round is made in it.
        heard: Is told of each round.

    Raises:
        ConfigurationError: The program does not end well undisturbed, or sends nothing.
    """
    strikes: dict[Strike, int] = {"killed": plan.kills, "frozen": plan.freezes}
    most = 3 * (plan.kills + plan.freezes)  # or a program that nothing hits would run for ever
    rounds: list[Round] = []

    async def one(usual: Round | None = None) -> Round:
        round_ = Round(len(rounds), folder / f"round-{len(rounds)}")
        rounds.append(round_)
        chance = random.Random(f"{plan.seed}/{round_.number}")
        _make(round_.folder, plan.copies)
        async with Sandbox(**{"seed": plan.seed, **plan.sandbox}) as sandbox:
            await _Playing(plan, begin, chance, sandbox, round_, usual, strikes).play()
        if heard is not None:
            heard(round_)
        return round_

    async def some(usual: Round) -> None:
        while any(strikes.values()) and len(rounds) <= most:
            await one(usual)

    usual = await one()
    _check_usual(usual)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(plan.workers, 1 + sum(strikes.values()) // 2)):  # a round takes some 3
            tasks.create_task(some(usual))
    return rounds


def _make(folder: Path, copies: Sequence[Path]) -> None:
    folder.mkdir(parents=True)
    for path in copies:
        try:
            if path.is_dir():
                shutil.copytree(path, folder / path.resolve().name)
            else:
                shutil.copy2(path, folder)
        except OSError as error:
            raise ConfigurationError(f"cannot copy {path}: {error.strerror or error}") from None


def _check_usual(usual: Round) -> None:
    if usual.stuck:
        raise ConfigurationError(
            f"undisturbed, the program does not end well: {usual.stuck}. It ran in a new, empty "
            "folder: --copy gives it files and folders that it needs there"
        )
    if not usual.requests:
        raise ConfigurationError(
            "the program ended without a request to the sandbox: it has to take its address and "
            "key from INTEGRATION_SDK_BASE_URL and INTEGRATION_SDK_API_KEY"
        )


# Programs


@define(eq=False)
class Process:
    """A program in a process group of its own; *output* is a file of all it says."""

    running: asyncio.subprocess.Process
    output: Path
    over: bool = False

    def kill(self) -> None:
        """End it and what it has started, at once."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it, as a machine that sleeps."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if not self.over:
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, number)

    async def end(self) -> str:
        """Wait for its end, and end what it has left running."""
        try:
            code = await self.running.wait()
        finally:
            self.kill()
        if code == 0:
            return ""
        said = self.output.read_text(errors="replace").strip().splitlines()
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        return f"{how}, last line: {said[-1].strip()[:300]}" if said else how


def where(sandbox: Sandbox) -> dict[str, str]:
    """Return the environment variables that name a sandbox."""
    return {
        "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
        "INTEGRATION_SDK_API_KEY": sandbox.api_key,
    }


def program(command: Sequence[str]) -> Begin:
    """Return how *command* is started in another folder.

    The first of its arguments that is a file here, which is a script as a rule, is found there.

    Raises:
        ConfigurationError: There is no such program.
    """
    words = list(command)
    if not words:
        raise ConfigurationError("give the command that is to be tested behind --")
    if shutil.which(words[0]) is None:
        raise ConfigurationError(f"there is no program {words[0]!r}")
    if os.sep in words[0]:
        words[0] = str(Path(words[0]).absolute())  # not what a link leads to: a venv is one
    for index, word in enumerate(words[1:], 1):
        if Path(word).is_file():
            words[index] = str(Path(word).absolute())
            break
    path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))

    async def begin(sandbox: Sandbox, folder: Path) -> Process:
        output = folder.with_name(f"{folder.name}.out")
        with output.open("ab") as log:
            running = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=os.environ | where(sandbox) | {"PYTHONPATH": path},
                start_new_session=True,
            )
        return Process(running, output)

    return begin
