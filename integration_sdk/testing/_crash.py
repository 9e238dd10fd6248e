"""Crash tests: a program is killed, frozen and started again, in rounds.

Each has a fresh sandbox and an empty folder, a few kills, freezes and faults, and is over once the
program has ended well; it is started again until then. Round 0 is undisturbed: what it pushes and
writes is what every other round is to push and write (`_crash_report`).
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from typing import Any, Final

from attrs import Factory, define, field, frozen

from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Answer, Call, Sandbox
from integration_sdk.testing._crash_report import CrashReport, Round

SMALL: Final = {"companies": 3, "invoices": 500, "push_seconds": (0.02, 0.1)}
ROUNDS_AT_ONCE: Final = 16
"""Most programs wait most of the time."""
STRIKES_A_ROUND: Final = 5
TRIES: Final = 3
"""Times that a program may end badly by itself until a round is given up."""
PAUSE: Final = 0.2
"""Seconds before a program that ended badly by itself is started again."""
FREEZE: Final = (0.1, 1.0)
"""Least and most seconds of a freeze."""
SOON: Final = (-5.0, -1.5)
"""Powers of ten of the seconds in which a program receives an answer and does something with it."""


def _found_from_here(command: Sequence[str]) -> tuple[str, ...]:
    # Not what a link leads to: the python of a virtual environment is one.
    return tuple(str(Path(one).absolute()) if Path(one).is_file() else one for one in command)


@frozen(kw_only=True)
class CrashTest:
    """A program, and how it is crash-tested; `run` does it.

    Attributes:
        command: The program and its arguments, without a shell; paths of files that exist here are
            made absolute. It finds the sandbox by INTEGRATION_SDK_BASE_URL and
            INTEGRATION_SDK_API_KEY.
        kills, freezes: How many SIGKILLs and SIGSTOPs, in all rounds together.
        patience: Seconds until a program that still runs counts as one that never ends.
        sandbox: Options of `Sandbox`; by default 3 companies of 500 invoices, and quick pushes.
        identity: Path of the field that tells pushed records from each other; None for all of it.
        files: What the program writes, seen from its folder: NDJSON or Parquet with a field
            ``id``, or a folder of these, such as that of a pull.

    Raises:
        ConfigurationError: There is no such program, or an option cannot work.
    """

    command: Sequence[str] = field(kw_only=False, converter=_found_from_here)
    kills: int = 50
    freezes: int = 10
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
        try:  # before the program has run for a minute
            self.make_sandbox()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(str(error)) from None

    def make_sandbox(self) -> Sandbox:
        return Sandbox(**{**SMALL, **self.sandbox})

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
            chance = random.Random(round_.number)
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
                f"undisturbed, in an empty folder, the program does not end well: {usual.stuck}"
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
        await report.judge(identity=self.identity, files=self.files)
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
        running: The program, unless it has been killed or has ended.
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
    running: Process | None = None
    timer: asyncio.TimerHandle | None = None

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.sandbox.faults.add(self._watch, outermost=True)
        if self.usual is not None:
            faults, requests = self.sandbox.faults, self.usual.counts["requests"]
            skips = [self.chance.randrange(2 * requests) for _ in range(2)]
            code = self.chance.choice((429, 503))
            faults.lose_answer(skip=skips[0], times=1)
            faults.status(code, headers={"Retry-After": "1"}, skip=skips[1], times=1)
            self.allowed = self.chance.randint(1, STRIKES_A_ROUND)
            self._aim(self.usual)
        await self._until_it_ends_well()
        if self.timer is not None:
            self.timer.cancel()
        self.round.seconds = loop.time() - began
        self.sandbox.clock.advance(hours=1)  # every push that will end has ended
        self.round.pushes = [one for one in self.sandbox.pushes if not one.foreign]

    async def _until_it_ends_well(self) -> None:
        tries = 1 if self.usual is None else TRIES
        while (how := await self._live()) != "":
            if how:
                tries -= 1
                if not tries:
                    self.round.stuck = how
                    return
                await asyncio.sleep(PAUSE)

    async def _live(self) -> str | None:
        """Run the program once; return how it ended: "" is well, None that it was killed."""
        self.round.counts["started"] += 1
        output = self.round.folder.with_name(f"{self.round.folder.name}.out")
        path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
        given = {
            "INTEGRATION_SDK_BASE_URL": self.sandbox.base_url,
            "INTEGRATION_SDK_API_KEY": self.sandbox.api_key,
            "PYTHONPATH": path,
        }
        with output.open("ab") as log:
            process = self.running = await asyncio.create_subprocess_exec(
                *self.test.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.round.folder,
                env=os.environ | given,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(self.test.patience):
                code = await process.wait()
        except TimeoutError:
            return f"it still runs after {self.test.patience:g} seconds"
        finally:
            _signal(process, SIGKILL)
            await process.wait()
            was_killed, self.running = self.running is None, None
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
        self.timer = asyncio.get_running_loop().call_later(seconds, self._strike, when)

    async def _watch(self, call: Call, proceed: Callable[[], Awaitable[Answer]]) -> Answer:
        """Count a request, and strike where it is its moment."""
        counts, writes = self.round.counts, call.method != "GET"
        counts["requests"] += 1
        counts["writes"] += writes
        is_counted = writes or not (self.usual and self.usual.counts["writes"])
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
        """Kill or freeze the program; return whether it was killed."""
        process = self.running
        if self.usual is None or process is None or not (self.allowed and self.left.total()):
            return False
        (kind,) = self.chance.choices(list(self.left), list(self.left.values()))
        self.left[kind] -= 1
        self.allowed -= 1
        self.round.counts[kind] += 1
        self.round.strikes.append(f"life {self.round.counts['started']} was {kind} {when}")
        if kind == "killed":
            self.running = None
            _signal(process, SIGKILL)
        else:
            _signal(process, SIGSTOP)
            seconds = self.chance.uniform(*FREEZE)
            asyncio.get_running_loop().call_later(seconds, _signal, process, SIGCONT)
        self._aim(self.usual)
        return kind == "killed"
