"""The command that crash-tests a program: its progress, and a table or JSON."""

from __future__ import annotations

from collections import Counter
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import asdict

from integration_sdk.cli._display import NOT_ALL, interruptible, progress, show, show_table
from integration_sdk.cli._service import Flag, Quiet
from integration_sdk.testing import CrashTest, Round


async def crashtest(
    command: tuple[str, ...] = (),
    *,
    kills: int = 50,
    freezes: int = 10,
    identity: str | None = None,
    expect: list[str] | None = None,
    keep: Path | None = None,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Kill and freeze a program against a sandbox; find what it has doubled or lost.

    Give the command behind --, such as: crashtest -- python my_job.py. It finds the sandbox by
    INTEGRATION_SDK_BASE_URL and INTEGRATION_SDK_API_KEY, and runs in a new, empty folder. First it
    runs undisturbed: what it pushes then is what it is to push. After that it is killed (SIGKILL)
    and frozen (SIGSTOP) at random moments and before and after a request, among lost answers, 429
    and 503, and started again until it ends well; and so on, each time with a fresh sandbox and
    folder. What a journal of its own names in doubt is counted apart, and is no failure.

    Exit codes: 0 nothing is doubled, lost or missing, 1 something is, 2 wrong usage or a program
    that cannot be tested, 130 interrupted.

    Parameters
    ----------
    command
        The program and its arguments. Paths of files that exist here are made absolute.
    kills
        How many.
    freezes
        How many; a freeze takes up to a second.
    identity
        Path of the field that tells pushed records from each other, such as invoiceNumber, where
        they differ from run to run. Without it the whole content does.
    expect
        File or folder that the program writes, seen from its folder: what pull writes, or NDJSON
        or Parquet with a field id. Can be repeated.
    keep
        A folder that keeps what the program wrote and said in each round.
    json
        One JSON object in place of a table.
    """
    test = CrashTest(command, kills=kills, freezes=freezes, identity=identity, files=expect or ())
    with (
        TemporaryDirectory(prefix="crashtest-", ignore_cleanup_errors=True) as temporary,
        progress(quiet=quiet) as live,
    ):
        task = live.add_task("Crash test", total=kills + freezes, note="")

        def on_round(rounds: list[Round]) -> None:
            done = sum(len(one.strikes) for one in rounds)
            live.update(task, completed=done, note=f"round {len(rounds) - 1}")

        report = await interruptible(test.run(keep or Path(temporary), on_round))
    facts = {"passed": report.passed, "rounds": len(report.rounds) - 1}
    facts |= {name: report.count(name) for name in ("killed", "frozen", "started", "requests")}
    facts |= {"inDoubt": report.in_doubt, **Counter(one.kind for one in report.findings)}
    if json:
        where = [one.strikes for one in report.rounds]
        found = [asdict(one) | {"where": where[one.round]} for one in report.findings]
        show(dumps(facts | {"findings": found}))
    else:
        show_table("Crash test", facts.items())
        for line in str(report).splitlines():
            show(line)
    return 0 if report.passed else NOT_ALL
