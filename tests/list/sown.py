"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {}
