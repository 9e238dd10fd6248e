"""The program that is killed: it pushes one file of records through a journal.

``python -m tests.proof_child once CONFIG`` pushes once. ``python -m tests.proof_child nursery``
reads a CONFIG (JSON) a line and forks a life for each, so that a life costs no import; it
answers ``pid N``, then what the life says, then ``ended CODE``. A life says ``open`` and a line
of JSON for each outcome.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from integration_sdk import Client, PushOutcome, PushRequest
from integration_sdk._store import database
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
    with by itself is left to it.
    """
    database.LEASE = config.get("lease", database.LEASE)  # type: ignore[misc]  # not to wait long
    async with Client(config["api_key"], config["base_url"]) as client:
        pushes = client.coordinator(
            journal=config["journal"],
            patience=config["patience"],
            max_in_flight=config["in_flight"],
        )
        async with pushes:
            if "synchronous" in config:  # a fault to be seeded: see `audit`
                await sync_less(
                    pushes._require_sender().protocol.driver.journal, config["synchronous"]
                )
            say("open")
            recovered = () if config["again"] else pushes.recovered
            known = {push.request.reference for push in recovered}
            rest = [one for one in requests(config) if one.reference not in known]
            async for outcome in pushes.run(rest):
                tell(outcome)
            for push in recovered:
                tell(await push)


async def sync_less(journal: Any, synchronous: str) -> None:
    """Let an open journal wait for less than it promises."""
    await journal._ask(journal._file._db.execute, f"PRAGMA synchronous = {synchronous}")


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
