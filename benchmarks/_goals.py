"""The goals, in one table; ``--check`` compares every run with it.

A goal names the row and the figure that it judges, so that the same figure of the other
contenders can be shown beside it, and the machine's limit if a contender measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve

from benchmarks._question import Goal, Pick, Rows

SDK = "integration_sdk"
MILLION = "1,000,000 items"
PUSHED = "10,000 pushes"
INVOICES = "120,000 invoices"
WITH_JOURNAL, WITHOUT_JOURNAL = "client, 64 in flight, journal", "client, 64 in flight, no journal"

Measured = Callable[[Rows], float]


def at_most(what: str, bound: float, of: Measured, *, full: bool = True, limit: str = "") -> Goal:
    """Return a goal: a figure that must not exceed *bound*; *full*: judge it at full size only."""
    return Goal(what, "<=", bound, of, needs_full=full, limit=limit)


def headline(goal: Goal) -> Goal:
    """Return the same goal, to be shown in README."""
    return evolve(goal, headline=True)


def at_least(what: str, bound: float, of: Measured, *, full: bool = True) -> Goal:
    """Return a goal: a figure that must reach *bound*."""
    return Goal(what, ">=", bound, of, needs_full=full)


def _beyond(setting: str, contender: str, figure: str, base: str) -> Measured:
    """Return by how much the figure of *contender* exceeds that of *base*."""

    def measured(rows: Rows) -> float:
        return rows.median(setting, contender, figure) - rows.median(setting, base, figure)

    return measured


def _ratio(setting: str, figure: str, one: str, other: str) -> Measured:
    """Return the ratio of a figure of *one* to that of *other*, without showing other rows."""

    def measured(rows: Rows) -> float:
        return rows.median(setting, one, figure) / rows.median(setting, other, figure)

    return measured


def _cost(page_size: str) -> Goal:
    pick = Pick(f"{page_size} a page", SDK, "CPU us/item", over="raw socket + msgspec")
    what = f"CPU per dict, {page_size} a page, over raw socket + msgspec"
    return at_most(what, 1.15, pick, limit="aiohttp + msgspec")


def _peak(page_size: str, mib: float) -> Goal:
    pick = Pick(f"{page_size} a page, {MILLION}", SDK, "peak MiB")
    return at_most(f"MiB over base, {MILLION}, {page_size} a page", mib, pick)


def _growth(page_size: str) -> Goal:
    def measured(rows: Rows) -> float:
        peaks = (
            rows.median(f"{page_size} a page, {items} items", SDK, "peak MiB")
            for items in ("1,000,000", "250,000")
        )
        return next(peaks) - next(peaks)

    return at_most(f"MiB more for {MILLION} than for a quarter, {page_size} a page", 4, measured)


def _faster(walk: str, ahead: int, times: float, *, full: bool = True) -> Goal:
    pick = Pick(walk, f"{ahead} ahead", "x faster")
    return at_least(
        f"times as fast as one by one, {walk}, prefetch {ahead}", times, pick, full=full
    )


def _stall(page_size: str, who: str, milliseconds: float) -> Goal:
    pick = Pick(f"{page_size} a page", who, "stall p99 ms")
    return at_most(f"event-loop stall p99 in ms, {page_size} a page, {who}", milliseconds, pick)


GOALS: Mapping[str, tuple[Goal, ...]] = {
    "streaming": (_cost("5,000"), headline(_cost("1,000")), _cost("100")),
    "models": (
        at_most(
            "CPU of typed attrs objects over dicts",
            1.5,
            Pick("1,000 a page", "attrs, 16 fields", "CPU us/item", over="dicts"),
        ),
        at_most(
            "CPU of a 3-field model over dicts",
            1.0,
            Pick("1,000 a page", "attrs, 3 fields", "CPU us/item", over="dicts"),
        ),
    ),
    "prefetch": (
        headline(_faster("40 pages of 100, 50 ms", 8, 6.5, full=False)),
        _faster("100 pages of 1,000, 100 ms", 8, 7),
        _faster("400 pages of 10, 100 ms", 32, 28),
    ),
    "stalls": (
        headline(_stall("5,000", SDK, 10)),
        _stall("5,000", f"{SDK}, attrs", 10),
        _stall("1,000", SDK, 5),
        _stall("1,000", f"{SDK}, attrs", 5),
    ),
    "memory": (
        _peak("5,000", 64),
        _growth("5,000"),
        _peak("1,000", 30),
        _growth("1,000"),
        _peak("100", 16),
        _growth("100"),
    ),
    "shared_rate": (
        at_most(
            "time of three processes with a shared rate, over the ideal",
            1.05,
            Pick("3 processes", "store.rate", "x ideal time"),
        ),
        at_most(
            "answers 429 of three processes with a shared rate",
            10,
            Pick("3 processes", "store.rate", "429s"),
        ),
    ),
    "crowd": (
        headline(
            at_most(
                "calls that failed, of 1,000 at 100 a second",
                0,
                Pick("calls at once", SDK, "failed"),
            )
        ),
        headline(at_most("answers 429, same run", 120, Pick("calls at once", SDK, "429s"))),
        at_most("times the ideal time, same run", 1.1, Pick("calls at once", SDK, "x ideal time")),
    ),
    "pushing": tuple(
        headline(goal)
        for goal in (
            at_most(
                "requests per settled push, 10,000 in 10 companies, ~2 s each",
                1.05,
                Pick(PUSHED, SDK, "requests/push"),
            ),
            at_most("p50 of the delay in s, same run", 0.15, Pick(PUSHED, SDK, "delay p50 s")),
            at_most(
                "client CPU in s per 1,000 pushes",
                0.10,
                Pick(PUSHED, SDK, "CPU s/1,000"),
                limit="aiohttp POSTs alone",
            ),
        )
    ),
    "open_pushes": (
        at_least(
            "pushes a second over plain aiohttp's, 64 in flight",
            0.8,
            Pick(PUSHED, SDK, "pushes/s", over="aiohttp POSTs alone"),
        ),
        at_most(
            "bytes per open push beyond its payload",
            600,
            Pick(PUSHED, SDK, "bytes per open push"),
        ),
        at_most("loop lag p99 in ms with 10,000 open", 10, Pick(PUSHED, SDK, "loop lag p99 ms")),
    ),
    "call_overhead": tuple(
        at_most(
            f"us of CPU beyond aiohttp, {setting}",
            60,
            _beyond(setting, SDK, "CPU us/call", "aiohttp"),
            full=False,
        )
        for setting in ("GET, small answer", "POST, small record")
    ),
    "journal_cost": (
        at_least(
            "pushes a second with a journal over without, 64 in flight",
            0.6,
            _ratio("4 commits a push", "pushes/s", WITH_JOURNAL, WITHOUT_JOURNAL),
        ),
    ),
    "import_time": (
        at_most(
            "import in ms of CPU beyond aiohttp's own",
            100,
            _beyond("fresh process", "both", "import ms of CPU", "aiohttp"),
            full=False,
        ),
    ),
    "first_item": (
        at_most(
            "seconds from process start to the first item",
            0.2,
            Pick("fresh process", SDK, "s to first item"),
            full=False,
            limit="aiohttp + json",
        ),
    ),
    "pull": (
        headline(
            at_least(
                "pull to NDJSON over a script of aiohttp and json",
                3.0,
                Pick(INVOICES, "ndjson, pull", "rows/s", over="aiohttp + json script"),
            )
        ),
        at_least(
            "pull to Parquet over the same sink fed from memory",
            0.8,
            Pick(INVOICES, "parquet, pull", "rows/s", over="parquet, from memory"),
        ),
        at_least(
            "pull to Parquet with two threads over conversion in the loop",
            1.0,  # where client and sandbox share two cores
            Pick(INVOICES, "parquet, pull", "rows/s", over="parquet, in the loop"),
        ),
    ),
    "scale_run": (
        at_most(
            "MiB that 1,000,000 pushes through run(max_open=2000) add after the first tenth",
            16,
            Pick("1,000,000 pushes", SDK, "MiB grown"),
        ),
    ),
    "scale_million": (
        at_most(
            "MiB that a day of 1,000,000 pushes adds after the first quarter",
            16,
            Pick("1,000 a company and day", "in 10 batches", "MiB grown"),
        ),
    ),
}
"""Goals by the name of their question. `polling` has its own, beside its settings."""
