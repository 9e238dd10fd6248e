"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an older state of a pulled record wins": Fault(
        "sandbox/_pulled.py",
        "if state[:2] >= held[:2]:\n                    states[str(shown.id)] = state",
        "if True:\n                    states[str(shown.id)] = state",
        "sandbox_pulled",
        "_source",
    ),
    "names that only some pulled records have are refused": Fault(
        "sandbox/_pulled.py",
        "Source(len(rows), lambda start, stop: rows[start:stop], places.get, alike=False)",
        "Source(len(rows), lambda start, stop: rows[start:stop], places.get)",
        "sandbox_pulled",
        "_source",
    ),
    "DELETE of some faults ends all": Fault(
        "sandbox/_faults.py",
        '[rule for rule in self if text and {**rule.plain(), "hits": 0} not in ended]',
        '[rule for rule in self if not text and {**rule.plain(), "hits": 0} not in ended]',
        "sandbox_page",
        "Rules.end_listed",
    ),
    "a 429 is kept for its idempotency key": Fault(
        "sandbox/_account.py",
        "entry.answer is not None and entry.answer.status != 429",
        "entry.answer is not None",
        "sandbox_faults",
        "Replays.through",
    ),
    "a key is kept for another request": Fault(
        "sandbox/_account.py",
        'if known.request != request:\n                raise Refused(422, "The Idempotency-Key was used for another request")',
        'if False:\n                raise Refused(422, "The Idempotency-Key was used for another request")',
        "sandbox_published sandbox_pushing",
        "Replays.through",
    ),
    "a quota that is never renewed": Fault(
        "sandbox/_account.py",
        "if self.day != now // DAY:\n            self.day, self.used = int(now // DAY), 0",
        "if self.day < 0:\n            self.day, self.used = int(now // DAY), 0",
        "sandbox_published sandbox_itself sandbox_document",
        "Quota.count",
    ),
}
