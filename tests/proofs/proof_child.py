"""The program that is killed: it pushes one file of records through a journal.

``python -m tests.proofs.proof_child once CONFIG`` pushes once. ``... nursery``
reads a CONFIG (JSON) a line and forks a life for each, so that a life costs no import; it
answers ``pid N``, then what the life says, then ``ended CODE``. A life says ``open`` and a line
of JSON for each outcome.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from integration_sdk import Client, PushOutcome, PushRequest
from integration_sdk._store import postgres
from integration_sdk.errors import JournalInUse


def invoice(number: str) -> dict[str, Any]:
    """An invoice that every platform takes."""
    return {
        "invoiceNumber": number,
        "customerRef": {"id": "c-1"},
        "issueDate": "2024-03-01",
        "dueDate": "2024-03-31",
        "currency": "GBP",
        "status": "Submitted",
        "lineItems": [{"description": "Ash worktop", "unitAmount": 120.5, "quantity": 2}],
    }


def requests(config: Mapping[str, Any]) -> list[PushRequest]:
    """The file: always the same records under the same references."""
    return [
        PushRequest(
            config["company"],
            config["connections"][number % len(config["connections"])],
            "invoices",
            invoice(f"{config['name']}-{number:05d}"),
            reference=f"{config['name']}-{number:05d}",
            natural_key="invoiceNumber" if config["natural_key"] else None,
        )
        for number in range(config["records"])
    ]


async def push(config: Mapping[str, Any]) -> None:
    """Push the file, and say how each record ended.

    With ``again`` all of it is submitted again; else what `Coordinator.recovered` goes on
    with by itself is left to it. ``lease`` are the seconds of a lease, not to wait long;
    ``synchronous`` seeds a fault.
    """
    postgres.LEASE = config.get("lease", postgres.LEASE)  # type: ignore[misc]
    postgres.POLL = min(postgres.POLL, postgres.LEASE)  # type: ignore[misc]
    Careless.synchronous = config.get("synchronous", "FULL")
    sqlite3.connect = partial(sqlite3.connect, factory=Careless)  # type: ignore[assignment]  # to seed it
    async with Client(config["api_key"], config["base_url"]) as client:
        pushes = client.coordinator(
            journal=config["journal"],
            search_for=config["patience"],
        )
        async with pushes:
            say("open")
            recovered = () if config["again"] else pushes.recovered
            known = {push.request.reference for push in recovered}
            rest = [one for one in requests(config) if one.reference not in known]
            async for outcome in pushes.run(rest):
                tell(outcome)
            for push in recovered:
                tell(await push)


class Careless(sqlite3.Connection):
    """A connection that waits for less than it is told to."""

    synchronous: ClassVar[str] = "FULL"

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "PRAGMA synchronous = FULL":
            sql = f"PRAGMA synchronous = {self.synchronous}"
        return super().execute(sql, *values)


def tell(outcome: PushOutcome) -> None:
    """Say how a push ended."""
    say(json.dumps([outcome.reference, outcome.status, outcome.key]))


def say(line: str) -> None:
    """Write a line at once, whole: nothing is left in a buffer when the process is killed."""
    os.write(1, f"{line}\n".encode())


def live(config: Mapping[str, Any]) -> int:
    """Live one life; the journal of a killed one may still be held for a moment."""
    for _ in range(100):
        try:
            asyncio.run(push(config))
        except JournalInUse:
            continue
        else:
            return 0
    return 1


def nursery() -> None:
    """Fork a life for each line."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 70
            say(f"pid {os.getpid()}")
            try:
                code = live(json.loads(line))
            finally:
                sys.stderr.flush()
                if code:
                    sys.excepthook(*sys.exc_info())
                os._exit(code)
        _, status = os.waitpid(child, 0)
        say(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    logging.getLogger("integration_sdk").setLevel(logging.ERROR)  # each death is a warning
    if sys.argv[1] == "once":
        sys.exit(live(json.loads(sys.argv[2])))
    nursery()
