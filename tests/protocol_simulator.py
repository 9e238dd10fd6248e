"""A seeded world in which the push protocol runs as it is: the same rules, the same journal.

One history: a caller pushes a few records, some of them alike, through a process that is
killed before and after effects and started again with the same records. The service loses,
delays, refuses and mangles; lists lag, are cut short or cannot be had; echoes are missing;
strangers write to the same company; the service's clock steps; the disk refuses. Then the
weather clears, the process is started a last time, and the truth is compared with the journal.

``python -m tests.protocol_simulator --histories 2000000`` runs as many as you like.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any

from attrs import Factory, define, evolve, fields_dict

from tests.protocol_history import History
from tests.protocol_world import Weather


@define
class Tally:
    """What many histories came to."""

    histories: int = 0
    crashes: int = 0
    transmissions: int = 0
    states: Counter[str] = Factory(Counter)
    links: Counter[str] = Factory(Counter)
    fates: Counter[str] = Factory(Counter)
    violations: list[tuple[int, str]] = Factory(list)

    def add(self, other: "Tally") -> None:
        """Count what *other* counted as well."""
        for name in fields_dict(Tally):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def simulate(seeds: range, *, stop_at: str | None = None, **weather: Any) -> Tally:
    """Run the histories of these seeds, up to the first violation of the kind *stop_at*.

    *weather* overrides what the seed rolls.
    """
    tally = Tally()
    for seed in seeds:
        history = History(seed, evolve(Weather.roll(Random(f"weather {seed}")), **weather))
        found = history.run()
        tally.histories += 1
        tally.crashes += history.crashes
        tally.transmissions += len(history.disk.sent)
        tally.states += history.states
        tally.links += history.links
        tally.fates += history.service.fates
        tally.violations += [(seed, one) for one in found]
        if stop_at and any(one.startswith(stop_at) for one in found):
            break
    return tally


def simulate_side_by_side(seeds: range, jobs: int) -> Tally:
    """Run the histories in so many processes."""
    tally = Tally()
    parts = [seeds[first : first + 1000] for first in range(0, len(seeds), 1000)]
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(simulate, parts):
            tally.add(part)
            sys.stderr.write(f"\r{tally.histories} histories, {len(tally.violations)} violations")
    sys.stderr.write("\n")
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    began = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.histories)
    tally = simulate_side_by_side(seeds, options.jobs)
    seconds = time.perf_counter() - began
    lines = [
        f"{tally.histories} histories, {tally.transmissions} transmissions, "
        f"{tally.crashes} crashes, {seconds:.1f} s",
        f"states at the end: {dict(tally.states.most_common())}",
        f"keys known by: {dict(tally.links.most_common())}",
        f"fates: {dict(tally.fates.most_common())}",
        f"violations: {len(tally.violations)} {tally.violations[:10]}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(1 if tally.violations else 0)


if __name__ == "__main__":
    main()
