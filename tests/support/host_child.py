"""A program that uses the client, and says in what its process differs from before.

``python -m tests.support.host_child JOB`` writes the differences as JSON; JOB is JSON, see `use`.
"""

import asyncio
import gc
import json
import locale
import logging
import os
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

was_collecting: list[bool] = []
"""Whether the garbage collector was on, each time that the client has made an item."""


@dataclass
class Invoice:
    id: str

    def __post_init__(self) -> None:
        was_collecting.append(gc.isenabled())


def state() -> dict[str, Any]:
    """Return what belongs to the process, not to a library in it."""
    root = logging.getLogger()
    ours = logging.getLogger("integration_sdk")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that policies will go
        policy = asyncio.get_event_loop_policy()
    return {
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug()),
        "collector's callbacks": list(map(repr, gc.callbacks)),
        "signal handlers": {int(one): repr(signal.getsignal(one)) for one in signal.Signals},
        "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "warning filters": list(map(repr, warnings.filters)),
        "showing of warnings": repr(warnings.showwarning),
        "logging": repr((root.level, root.handlers, root.filters, root.manager.disable)),
        "logging of the SDK": repr((ours.level, ours.handlers, ours.filters, ours.propagate)),
        "classes of logging": repr((logging.getLoggerClass(), logging.getLogRecordFactory())),
        "environment": dict(os.environ),
        "event-loop policy": repr(policy),
        "hooks": repr((sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)),
        "locale": locale.setlocale(locale.LC_ALL),
        "where": (str(Path.cwd()), list(sys.path)),
        "threads": sorted(one.name for one in threading.enumerate()),
    }


async def use(job: dict[str, Any]) -> None:
    """List in every way; push, wait, and push with a journal."""
    from integration_sdk import Client, OutcomeStatus, PushRequest

    lane = (job["company"], job["connection"], "invoices")
    async with Client(job["api_key"], job["base_url"]) as client:
        books = client.company(job["company"]).connection(job["connection"])
        invoices = client.company(job["company"]).data("invoices")
        pager = invoices.list(model=Invoice, page_size=200, prefetch=4)
        for reading in (pager, invoices.list(model=Invoice, page_size=200).pages(), pager.raw()):
            async for _ in reading:
                pass
        (await books.options("invoices")).check(job["record"])
        await client.wait(await books.push("invoices", job["record"]), timeout=60)
        async with client.coordinator(journal=job["journal"]) as pushes:
            outcome = await (await pushes.submit(PushRequest(*lane, job["record"], reference="1")))
            assert outcome.status is OutcomeStatus.SUCCESS


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Use the client; return what has changed: before and after, by name."""
    before = state()
    asyncio.run(use(job))
    after = state()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    if "ctypes" in sys.modules:  # without it, the allocator cannot be set
        changed["ctypes"] = ("not imported", "imported")
    if not all(was_collecting):
        changed["collector"] = ("on", "off while items are made")
    return changed | {"items made": len(was_collecting)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1])), default=repr))
