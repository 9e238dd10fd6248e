"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an old signature counts": Fault(
        "_notifications.py",
        "if sent is None or abs(now - sent) > tolerance:\n        return False",
        "if sent is None:\n        return False",
        "notifications",
        "is_signed",
    ),
    "a dot in the id": Fault(
        "_notifications.py",
        'if not theirs or not message_id or not message_id.isascii() or "." in message_id:\n        return False',
        "if not theirs or not message_id or not message_id.isascii():\n        return False",
        "notifications",
        "is_signed",
    ),
    "a duplicate counts twice": Fault(
        "_notifications.py",
        "self._seen[message_id] = None",
        "pass",
        "notifications",
        "Inbox._came_before",
    ),
    "ids are kept for ever": Fault(
        "_notifications.py",
        "if len(self._seen) > self.remembers:\n            self._seen.popitem(last=False)",
        "if False:\n            self._seen.popitem(last=False)",
        "notifications",
        "Inbox._came_before",
    ),
    "an unsigned id silences a push": Fault(
        "_notifications.py",
        'headers["webhook-id"] if signed else notification.id',
        'headers.get("webhook-id", notification.id)',
        "notifications webhooks",
        "Inbox.judge",
    ),
    "a body without a bound": Fault(
        "webhooks.py",
        "if len(body) > self._max_body:\n                return None",
        "if False:\n                return None",
        "webhooks",
        "Receiver._collect",
    ),
    "an empty secret": Fault(
        "webhooks.py",
        "(isinstance(value, str) and value for value in listed)",
        "(isinstance(value, str) for value in listed)",
        "webhooks",
        "_listed",
    ),
}
