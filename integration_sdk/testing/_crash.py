"""Crash tests: a program is killed, frozen and started again, and what it leaves is compared.

It runs in rounds. Each has a fresh sandbox and an empty folder, a few kills, freezes and faults,
and is over once the program has ended well; it is started again until then. Round 0 is undisturbed:
what it pushes is what every other round is to push.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from typing import Any, Final

from attrs import Factory, define, field, frozen

from integration_sdk._push.agreement import value_at
from integration_sdk._store.row import State
from integration_sdk._store.sqlite import APPLICATION_ID
from integration_sdk._store.store import Store
from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Answer, Call, Operation, Sandbox
from integration_sdk.testing._written import records_in

SMALL: Final = {"companies": 3, "invoices": 500, "push_seconds": (0.02, 0.1)}
ROUNDS_AT_ONCE: Final = 16
"""Most programs wait most of the time."""
STRIKES_A_ROUND: Final = 5
FAULTS_A_ROUND: Final = 2
TRIES: Final = 3
"""Times that a program may end badly by itself until a round is given up."""
PAUSE: Final = 0.2
"""Seconds before a program that ended badly by itself is started again."""
SOON: Final = (-5.0, -1.5)
"""Powers of ten of the seconds in which a program receives an answer and does something with it."""
SHOWN: Final = 5


@define(eq=False)
class Round:
    """What one round came to: a folder with what the program left, and what the sandbox recorded.

    Attributes:
        strikes: Each kill and freeze, in words.
        counts: How many times it was ``killed``, ``frozen``, ``started``; ``requests``, ``writes``.
        stuck: Why the round was given up, or "".
        pushes: Every push that the service has recorded, oldest first.
    """

    number: int
    folder: Path
    strikes: list[str] = Factory(list)
    counts: Counter[str] = Factory(Counter)
    seconds: float = 0.0
    stuck: str = ""
    pushes: list[Operation] = Factory(list)


@frozen
class Finding:
    """What is wrong in a round: records are doubled, lost or missing, or it is stuck."""

    kind: str
    round: int
    what: str


@define
class CrashReport:
    """What a crash test came to; as text it is the first findings, with the strikes around them.

    Attributes:
        rounds: The first one was undisturbed.
        findings: In the order of the rounds.
        in_doubt: Records that are not there, and that a journal of the program names in doubt.
    """

    rounds: list[Round]
    findings: list[Finding] = Factory(list)
    in_doubt: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def count(self, what: str) -> int:
        """How many times the program was ``killed``, ``frozen``, ``started``; ``requests``."""
        return sum(one.counts[what] for one in self.rounds[1:])

    def __str__(self) -> str:
        told = [
            "\n  ".join([f"{one.kind}, round {one.round}: {one.what}", *where])
            for one in self.findings[:SHOWN]
            for where in [self.rounds[one.round].strikes]
        ]
        more = len(self.findings) - SHOWN
        return "\n".join([*told, f"and {more:,} more"] if more > 0 else told)


def _found_from_here(command: Sequence[str]) -> tuple[str, ...]:
    # Not what a link leads to: the python of a virtual environment is one.
    return tuple(str(Path(one).absolute()) if Path(one).is_file() else one for one in command)


@frozen(kw_only=True)
class CrashTest:
    """A program, and how it is crash-tested; `run` does it.

    Attributes:
        command: The program and its arguments, without a shell; those that are files here are
            found from elsewhere, too. It finds the sandbox by INTEGRATION_SDK_BASE_URL and
            INTEGRATION_SDK_API_KEY, and its number by INTEGRATION_SDK_INSTANCE.
        kills, freezes: How many SIGKILLs and SIGSTOPs, in all rounds together.
        seed: The same seed chooses the same kinds of moments.
        instances: Copies of the program that run at the same time, in one folder.
        freeze_seconds: Least and most seconds that a freeze lasts.
        patience: Seconds until a program that still runs counts as one that never ends.
        sandbox: Options of `Sandbox`; by default 3 companies of 500 invoices, and quick pushes.
        identity: Path of the field that tells pushed records from each other; None for all of it.
        files: What the program writes, seen from its folder: NDJSON, CSV or Parquet with a field
            ``id``, or a folder of these, such as that of a pull.

    Raises:
        ConfigurationError: Something of it cannot be.
    """

    command: Sequence[str] = field(kw_only=False, converter=_found_from_here)
    kills: int = 50
    freezes: int = 10
    seed: int = 0
    instances: int = 1
    freeze_seconds: tuple[float, float] = (0.1, 1.0)
    patience: float = 60.0
    sandbox: Mapping[str, Any] = Factory(dict)
    identity: str | None = None
    files: Sequence[str] = ()

    def __attrs_post_init__(self) -> None:
        if not self.command:
            raise ConfigurationError("give the command that is to be tested behind --")
        if shutil.which(self.command[0]) is None:
            raise ConfigurationError(f"there is no program {self.command[0]!r}")
        if min(self.kills, self.freezes) < 0 or self.kills + self.freezes == 0:
            raise ConfigurationError("kills and freezes are counts, and one is above 0")
        if self.instances < 1 or self.patience <= 0:
            raise ConfigurationError("instances is at least 1, and patience above 0")
        try:  # before the program has run for a minute
            self.make_sandbox()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(str(error)) from None

    def make_sandbox(self) -> Sandbox:
        """Return the sandbox of a round, not started."""
        return Sandbox(**{**SMALL, "seed": self.seed, **self.sandbox})

    async def run(
        self, folder: Path, on_round: Callable[[list[Round]], object] | None = None
    ) -> CrashReport:
        """Play rounds until kills and freezes are used up, and compare them with the first.

        Args:
            folder: A folder for each round is made in it: round-0 (undisturbed), round-1, ...
            on_round: Called with all rounds whenever one is over.

        Raises:
            ConfigurationError: The program does not end well undisturbed, or sends nothing.
        """
        left = Counter({"killed": self.kills, "frozen": self.freezes})
        most = 3 * left.total()  # a program that no strike meets would run for ever
        rounds: list[Round] = []

        async def one(usual: Round | None) -> Round:
            round_ = Round(len(rounds), folder / f"round-{len(rounds)}")
            rounds.append(round_)
            round_.folder.mkdir(parents=True)
            chance = random.Random(f"{self.seed}/{round_.number}")
            async with self.make_sandbox() as sandbox:
                await _Playing(self, sandbox, round_, usual, left, chance).play()
            if on_round is not None:
                on_round(rounds)
            return round_

        async def some() -> None:
            while left.total() > 0 and len(rounds) <= most:
                await one(usual)

        usual = await one(None)
        if usual.stuck:
            raise ConfigurationError(
                f"undisturbed, the program does not end well: {usual.stuck}. It ran in a new, "
                "empty folder: name other files by their absolute paths"
            )
        if not usual.counts["requests"]:
            raise ConfigurationError(
                "the program ended without a request to the sandbox: it has to take its address "
                "and key from INTEGRATION_SDK_BASE_URL and INTEGRATION_SDK_API_KEY"
            )
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(ROUNDS_AT_ONCE, 1 + left.total() // 2)):
                tasks.create_task(some())
        report = CrashReport(rounds)
        for round_ in rounds:
            if round_.stuck:
                what = f"it does not end well any more: {round_.stuck}"
                report.findings.append(Finding("stuck", round_.number, what))
            else:
                await _judge(report, round_, self)
        return report


Process = asyncio.subprocess.Process


def _signal(process: Process, number: Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)  # and all that it has started


@define(eq=False)
class _Playing:
    """A round under way, with one strike at a time that waits for its moment.

    Attributes:
        left: Kills and freezes that are left; all rounds take from it.
        allowed: Strikes that this round may still have.
        seen: Requests that have arrived: only those that write, if the program sends such.
        due: What *seen* is at the next strike.
        alive: Copies of the program that run and have not been killed.
    """

    test: CrashTest
    sandbox: Sandbox
    round: Round
    usual: Round | None
    left: Counter[str]
    chance: random.Random
    allowed: int = 0
    seen: int = 0
    due: int = 0
    alive: list[Process] = Factory(list)
    timers: list[asyncio.TimerHandle] = Factory(list)

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.sandbox.faults.add(self._watch, outermost=True)
        if self.usual is not None:
            self._add_faults(self.usual.counts["requests"])
            self.allowed = self.chance.randint(1, STRIKES_A_ROUND)
            self._aim(self.usual)
        try:
            async with asyncio.TaskGroup() as tasks:
                for instance in range(self.test.instances):
                    tasks.create_task(self._until_it_ends_well(instance))
        finally:
            for timer in self.timers:
                timer.cancel()
        self.round.seconds = loop.time() - began
        self.sandbox.clock.advance(hours=1)  # every push that will end has ended
        self.round.pushes = [one for one in self.sandbox.pushes if not one.foreign]

    def _add_faults(self, requests: int) -> None:
        for _ in range(self.chance.randint(0, FAULTS_A_ROUND)):
            skip = self.chance.randrange(requests)
            if code := self.chance.choice((0, 429, 503)):
                self.sandbox.faults.status(code, headers={"Retry-After": "1"}, skip=skip, times=1)
            else:
                self.sandbox.faults.lose_answer(skip=skip, times=1)

    async def _until_it_ends_well(self, instance: int) -> None:
        failed = 0
        while not self.round.stuck:
            how = await self._live(instance)
            if how == "":
                return
            failed += how is not None
            if how and (self.usual is None or failed == TRIES):
                self.round.stuck = how
            await asyncio.sleep(PAUSE if how else 0)

    async def _live(self, instance: int) -> str | None:
        """Run the program once; return how it ended: "" is well, None that it was killed."""
        self.round.counts["started"] += 1
        output = self.round.folder.with_name(f"{self.round.folder.name}-{instance}.out")
        path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
        given = {
            "INTEGRATION_SDK_BASE_URL": self.sandbox.base_url,
            "INTEGRATION_SDK_API_KEY": self.sandbox.api_key,
            "INTEGRATION_SDK_INSTANCE": str(instance),
            "PYTHONPATH": path,
        }
        with output.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.test.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.round.folder,
                env=os.environ | given,
                start_new_session=True,
            )
        self.alive.append(process)
        try:
            async with asyncio.timeout(self.test.patience):
                code = await process.wait()
        except TimeoutError:
            return f"it still runs after {self.test.patience:g} seconds"
        finally:
            _signal(process, SIGKILL)
            await process.wait()
            was_killed = process not in self.alive
            self.alive = [one for one in self.alive if one is not process]
        if code == 0 or was_killed:
            return None if was_killed else ""
        said = output.read_text(errors="replace").strip().rpartition("\n")[2]
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        return f"{how}, last line: {said[:300]}"

    # Strikes

    def _aim(self, usual: Round) -> None:
        """Choose the moment of the next strike: a request that is still to come, or a time."""
        if self.chance.random() < 0.25:  # also before the first request and after the last
            self._later(self.chance.random() * usual.seconds, "at a random moment")
        else:
            usually = usual.counts["writes"] or usual.counts["requests"]
            self.due = self.seen + self.chance.randint(1, max(1, usually // 2))

    def _later(self, seconds: float, when: str) -> None:
        loop = asyncio.get_running_loop()
        self.timers.append(loop.call_later(seconds, self._strike, when))

    async def _watch(self, call: Call, proceed: Callable[[], Awaitable[Answer]]) -> Answer:
        """Count a request, and strike where it is its moment."""
        counts = self.round.counts
        counts["requests"] += 1
        if call.method != "GET":
            counts["writes"] += 1
        writes_count = self.usual is not None and self.usual.counts["writes"] > 0
        is_counted = call.method != "GET" or not writes_count
        self.seen += is_counted
        is_due = is_counted and self.seen == self.due
        where = "/".join(call.path.split("/")[-2:])
        named = f"request {counts['requests']} ({call.method} {where})"
        if is_due and self.chance.random() < 0.25 and self._strike(f"before {named}"):
            return Answer(dropped=True)
        answer = await proceed()
        if is_due:
            self._later(10 ** self.chance.uniform(*SOON), f"after {named} was handled")
        return answer

    def _strike(self, when: str) -> bool:
        """Kill or freeze a copy of the program; return whether it was killed."""
        if self.usual is None or not (self.alive and self.allowed and self.left.total()):
            return False
        (kind,) = self.chance.choices(list(self.left), list(self.left.values()))
        process = self.chance.choice(self.alive)
        self.left[kind] -= 1
        self.allowed -= 1
        self.round.counts[kind] += 1
        self.round.strikes.append(f"life {self.round.counts['started']} was {kind} {when}")
        if kind == "killed":
            self.alive.remove(process)
            _signal(process, SIGKILL)
        else:
            _signal(process, SIGSTOP)
            seconds = self.chance.uniform(*self.test.freeze_seconds)
            asyncio.get_running_loop().call_later(seconds, _signal, process, SIGCONT)
        self._aim(self.usual)
        return kind == "killed"


# What is wrong


async def _judge(report: CrashReport, round_: Round, test: CrashTest) -> None:
    """Compare a round with the first."""

    def found(kind: str, what: str) -> None:
        report.findings.append(Finding(kind, round_.number, what))

    usual, pushed = (_pushed(one, test.identity) for one in (report.rounds[0], round_))
    for content, pushes in pushed.items():
        most = max(1, len(usual.get(content, ())))
        if len(pushes) > most and pushes[0].verb in {"POST", "ATTACH"}:
            found("doubled", f"{_label(pushes[0])} is there {len(pushes)} times")
    lost = [pushes[0] for content, pushes in usual.items() if content not in pushed]
    doubts = await _in_doubt(round_.folder) if lost else set()
    for one in lost:
        if hashlib.sha256(one.sent).hexdigest() in doubts:
            report.in_doubt += 1
        else:
            found("lost", f"{_label(one)} was to be pushed, and never was")
    for path in test.files:
        try:
            usually, held = (_ids(one.folder / path) for one in (report.rounds[0], round_))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            found("missing", f"{path} cannot be read: {why}")
            continue
        for kind, ids in (("missing", usually - held), ("doubled", held - usually)):
            if ids:
                found(kind, f"{len(ids):,} records in {path}, such as {', '.join(list(ids)[:3])}")


def _ids(path: Path) -> Counter[str]:
    return Counter(str(one.get("id")) for one in records_in(path))


def _pushed(round_: Round, identity: str | None) -> dict[str, list[Operation]]:
    """Return the pushes that have had an effect, or will, by what they push."""
    pushed: dict[str, list[Operation]] = defaultdict(list)
    for one in round_.pushes:
        if one.status in {"Success", "Pending"}:
            what = identity and value_at(one.record, identity)
            record_id = None if one.verb == "POST" else one.record_id
            place = one.verb, one.company, one.connection, one.data_type, record_id
            pushed[json.dumps([*place, what or one.record], sort_keys=True)].append(one)
    return pushed


def _label(push: Operation) -> str:
    """Name the record of a push for people: by its first text."""
    values = push.record.values() if isinstance(push.record, dict) else ()
    return f"{push.data_type} {next((v for v in values if isinstance(v, str)), push.record_id)!r}"


async def _in_doubt(folder: Path) -> set[str]:
    """Return the hashes of the records that journals in *folder* name in doubt."""
    rows = [row for path in _journals(folder) for row in await Store(path).recorded()]
    return {row.payload_hash for row in rows if row.state is State.DOUBT}


def _journals(folder: Path) -> list[Path]:
    ours = APPLICATION_ID.to_bytes(4)
    return [path for path in folder.rglob("*.db") if path.read_bytes()[68:72] == ours]
