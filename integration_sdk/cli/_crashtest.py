"""The command that crash-tests a program: progress, a table, JSON and a page."""

from __future__ import annotations

import asyncio
import html
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from attrs import asdict
from cyclopts import Parameter
from rich.console import Console

from integration_sdk.cli._display import Board, Stderr, say, show_table, stdout
from integration_sdk.cli._ends import INTERRUPTED, SOME_DID_NOT, hearing_signals, usable
from integration_sdk.cli._options import Flag
from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Faults, Refused, Sandbox
from integration_sdk.testing._crash_findings import (
    FINDINGS_SHOWN,
    KINDS,
    CrashReport,
    Finding,
    judge,
)
from integration_sdk.testing._crashes import (
    SMALL,
    Begin,
    CrashPlan,
    Event,
    Expected,
    Round,
    play,
    program,
)

ROUNDS_SHOWN: Final = 40
WIDTH: Final = 960


async def crashtest(
    command: tuple[str, ...] = (),
    *,
    kills: int = 50,
    freezes: int = 10,
    seed: int = 0,
    workers: int = 16,
    faults: Path | None = None,
    copy: list[Path] | None = None,
    identity: str | None = None,
    expect: list[str] | None = None,
    data_type: Annotated[list[str] | None, Parameter(name="--type")] = None,
    key: str = "id",
    changes: int = 0,
    companies: int = 3,
    invoices: int = 500,
    published: Flag = False,
    patience: float = 60,
    report: Path | None = None,
    keep: Path | None = None,
    json: Flag = False,
) -> int:
    """Kill and freeze a program against a sandbox, and find what it has doubled or lost.

    Give the command behind --, such as: crashtest -- python my_job.py. It finds the sandbox by
    INTEGRATION_SDK_BASE_URL and INTEGRATION_SDK_API_KEY, and runs in a new, empty folder, so that
    nothing of yours is touched. First it runs undisturbed: what it pushes then is what it is to
    push. After that it is killed (SIGKILL) and frozen (SIGSTOP) at random moments and just before,
    while and after a request is handled, among lost answers, 429 and 503, and started again until
    it ends well; and so on, each time with a fresh sandbox and folder. What the journal of an
    integration_sdk program names IN_DOUBT is counted apart, and is no failure.

    Exit codes: 0 nothing is doubled, lost or missing, 1 something is, 2 wrong usage or a program
    that cannot be tested, 130 interrupted.

    Parameters
    ----------
    command
        The program and its arguments. The first that is a file here is found from there, too.
    kills
        How many.
    freezes
        How many; a freeze takes up to a second.
    seed
        The same seed chooses the same kinds of moments.
    workers
        Rounds at the same time: each has its own sandbox and folder, and mostly waits.
    faults
        A file of faults in place of the usual ones, as `sandbox` takes it; [] for none.
    copy
        A file or folder that the program finds in its folder; may be repeated.
    identity
        Path of the field that tells pushed records from each other, such as invoiceNumber, where
        they differ from run to run. Without it the whole content does.
    expect
        File or folder that the program writes, seen from its folder: what pull writes, or NDJSON,
        CSV, Parquet, SQLite or DuckDB with a column of ids. It is to hold all records of a --type;
        both may be repeated.
    data_type
        What --expect holds, such as invoices.
    key
        Name of the column of ids.
    changes
        Records of each --type that change once the program has ended well; it is then started
        again, and --expect is to have the new state.
    companies
        Companies of the sandbox.
    invoices
        Invoices in each company's books.
    published
        The sandbox speaks today's public API in place of the interface document.
    patience
        Seconds until a program that still runs counts as one that never ends.
    report
        Write a page with a timeline of kills and requests to this file.
    keep
        A new folder that keeps what the program wrote and said in each round.
    json
        One JSON object in place of a table.
    """
    plan = CrashPlan(
        kills=kills,
        freezes=freezes,
        seed=seed,
        workers=workers,
        faults=None if faults is None else _read_faults(faults),
        copies=tuple(copy or ()),
        identity=identity,
        expected=_expectations(expect or (), data_type or (), key),
        changes=changes,
        sandbox={
            **SMALL,
            "companies": companies,
            "invoices": invoices,
            "dialect": "published" if published else "document",
        },
        patience=patience,
    )
    out, err = stdout(), Stderr()
    began, begin = time.monotonic(), program(command)
    _check(plan, report)
    with _folder(keep) as folder:
        try:
            rounds = await _played(begin, plan, Path(folder), err)
        except asyncio.CancelledError:
            say(err, "integration-sdk: interrupted")
            return INTERRUPTED
        found = await judge(rounds, plan)
    seconds = time.monotonic() - began
    if json:
        say(out, dumps(_facts(found, seconds)))
    else:
        _show(out, found, seconds)
    if keep:
        say(err, f"what the rounds left is in {keep}")
    if report is not None:
        _write_page(report, command, found, seconds)
    return 0 if found.passed else SOME_DID_NOT


async def _played(begin: Begin, plan: CrashPlan, folder: Path, err: Console) -> list[Round]:
    board, struck = Board(err), Counter[str]()
    with board.shown():
        bar = board.bar("crash test")

        def hear(round_: Round) -> None:
            struck.update(event.what for event in round_.events)
            done, all_ = struck["killed"] + struck["frozen"], plan.kills + plan.freezes
            note = f"round {round_.number}, {struck['began']} lives"
            bar.show(f"{done} of {all_} kills and freezes", done / (all_ or 1), note=note)

        playing = asyncio.create_task(play(begin, plan, folder, hear))
        with hearing_signals(playing.cancel, partial(os._exit, INTERRUPTED)):
            return await playing


def _folder(keep: Path | None) -> AbstractContextManager[str | Path]:
    if keep is None:
        # What the last program has started may write a little longer.
        return TemporaryDirectory(prefix="crashtest-", ignore_cleanup_errors=True)
    with usable(f"cannot make the folder {keep}"):
        keep.mkdir(parents=True)
    return nullcontext(keep.absolute())  # programs run elsewhere


def _check(plan: CrashPlan, report: Path | None) -> None:
    """Find what cannot work before the program has run for a minute."""
    if report is not None:
        _check_writable(report)
    try:
        sandbox = Sandbox(**plan.sandbox)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    try:
        if plan.faults is not None:
            plan.faults(sandbox.faults)
        for expected in plan.expected:
            for company in sandbox.companies[:1]:
                sandbox.data_set(company.id, expected.data_type)
    except Refused as refused:
        raise ConfigurationError(f"--type: {refused.error}") from None
    except ValueError as error:
        raise ConfigurationError(f"--faults: {error}") from None


def _check_writable(file: Path) -> None:
    is_new = not file.exists()
    with usable(f"cannot write {file}"), file.open("ab"):
        pass
    if is_new:
        file.unlink()


def _expectations(paths: Sequence[str], types: Sequence[str], key: str) -> tuple[Expected, ...]:
    """Return what ``--expect`` and ``--type`` name, in pairs.

    Raises:
        ConfigurationError: There are more of one than of the other.
    """
    if len(paths) != len(types):
        raise ConfigurationError("each --expect PATH needs a --type, such as invoices")
    return tuple(
        Expected(path=path, data_type=type_, key=key)
        for path, type_ in zip(paths, types, strict=True)
    )


def _read_faults(file: Path) -> Callable[[Faults], object]:
    """Return what adds the faults of a file to those of a sandbox.

    Raises:
        ConfigurationError: It cannot be read.
    """
    with usable(f"cannot read {file}"):
        listed = file.read_bytes()
    return lambda faults: faults.add_listed(listed)


# On the terminal


def _show(out: Console, found: CrashReport, seconds: float) -> None:
    show_table(out, "Crash test", list(_summary(found, seconds)))
    for line in str(found).splitlines():
        say(out, line)
    if len(found.findings) > FINDINGS_SHOWN:
        say(out, "--report and --json have all")


def _summary(found: CrashReport, seconds: float) -> Iterator[tuple[str, str]]:
    yield "kills", f"{found.count('killed'):,}"
    yield "freezes", f"{found.count('frozen'):,}"
    yield "rounds", f"{len(found.rounds) - 1:,} and one undisturbed"
    yield "times started", f"{found.count('began'):,}"
    yield "requests", f"{found.count('request'):,}"
    yield "seconds", f"{seconds:.1f}"
    if found.in_doubt:
        yield "in doubt", f"{found.in_doubt:,} records, as the program's journal says"
    counts = _counts(found)
    for kind, count in counts.items():
        after = found.found_after[kind]
        yield kind, f"{count:,}, first found after {after:,} kills and freezes"
    yield "verdict", "FAILED" if counts else "passed: nothing doubled, lost or missing"


def _counts(found: CrashReport) -> dict[str, int]:
    counts = Counter[str]()
    for finding in found.findings:
        counts[finding.kind] += finding.count
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _facts(found: CrashReport, seconds: float) -> dict[str, Any]:
    return {
        "passed": found.passed,
        "kills": found.count("killed"),
        "freezes": found.count("frozen"),
        "rounds": len(found.rounds) - 1,
        "lives": found.count("began"),
        "requests": found.count("request"),
        "seconds": round(seconds, 1),
        "inDoubt": found.in_doubt,
        "found": _counts(found),
        "foundAfter": found.found_after,
        "findings": [asdict(one) for one in found.findings],
    }


# As a page

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem;color:#222}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}td{padding:.1rem 1rem .1rem 0}
code,pre{font:13px ui-monospace,monospace}.bad{color:#b00020}.good{color:#1b7f3b}
svg{display:block;width:100%;background:#f7f7f8;border-radius:6px;margin:.3rem 0 1rem}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}svg{background:#22252b}}
"""
_COLOURS: Final = {"killed": "#d32f2f", "frozen": "#1976d2"}


def _write_page(report: Path, command: Sequence[str], found: CrashReport, seconds: float) -> None:
    """Write the report as a page that needs nothing else; all text of others is escaped."""
    verdict = '<b class="good">passed</b>' if found.passed else '<b class="bad">failed</b>'
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td>{html.escape(text)}"
        for name, text in _summary(found, seconds)
    )
    bad = {finding.round for finding in found.findings}
    rounds = sorted(found.rounds, key=lambda one: one.number not in bad)[:ROUNDS_SHOWN]
    shown = "".join(_round(one, found.findings) for one in sorted(rounds, key=lambda o: o.number))
    report.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Crash test</title>'
        f"<style>{_STYLE}</style><h1>Crash test: {verdict}</h1>"
        f"<p><code>{html.escape(' '.join(command))}</code><table>{rows}</table>"
        "<p>In each round below, a bar is a life of the program and a tick a request, red where "
        "its answer was lost or an error. A red line is a kill, a blue one a freeze. Point at "
        f"them to read more.{shown}",
        encoding="utf-8",
    )


def _round(round_: Round, findings: Sequence[Finding]) -> str:
    title = f"Round {round_.number}" if round_.number else "Undisturbed"
    told = "".join(
        f'<p><b class="bad">{one.kind}</b>: {html.escape(one.what)}'
        f"<pre>{html.escape(os.linesep.join(one.where))}</pre>"
        for one in findings
        if one.round == round_.number
    )
    return f"<h2>{title}, {round_.seconds:.1f} s</h2>{_timeline(round_)}{told}"


def _timeline(round_: Round) -> str:
    scale = (WIDTH - 20) / (round_.seconds or 1)
    marks = "".join(_mark(event, round_, 10 + event.at * scale, scale) for event in round_.events)
    return f'<svg viewBox="0 0 {WIDTH} 56">{marks}</svg>'


def _mark(event: Event, round_: Round, x: float, scale: float) -> str:
    if event.what == "began":
        ends = [
            e.at for e in round_.events if e.life == event.life and e.what in {"killed", "ended"}
        ]
        width = (max(ends, default=round_.seconds) - event.at) * scale
        shape = f'<rect x="{x:.1f}" y="20" width="{width:.1f}" height="16" rx="3" fill="#9aa7b8"'
        return f'{shape} opacity=".5"><title>life {event.life}</title></rect>'
    if event.what == "request":
        good = event.status is not None and 200 <= event.status < 300
        colour, answer = "#555" if good else "#d32f2f", event.status or "no answer"
        title = html.escape(f"life {event.life}, request {event.number}: {event.text}, {answer}")
        shape = f'<rect x="{x:.1f}" y="22" width="1.5" height="12" fill="{colour}"'
        return f"{shape}><title>{title}</title></rect>"
    if event.what in _COLOURS:
        title = html.escape(f"life {event.life} {event.text}")
        shape = f'<rect x="{x:.1f}" y="6" width="2.5" height="44" fill="{_COLOURS[event.what]}"'
        return f"{shape}><title>{title}</title></rect>"
    return ""
