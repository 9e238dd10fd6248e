"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a plan for a company that does not exist": Fault(
        "cli/_plan.py",
        "if error.status not in NOT_NOW and error.status < 500:\n                raise",
        "if not error.status and error.status < 500:\n                raise",
        "cli_plan",
        "Forecast.ask",
    ),
}
