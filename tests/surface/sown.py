"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an old signature counts": Fault(
        "_notifications.py",
        "abs(now - int(sent)) > TOLERANCE",
        "False",
        "webhooks",
        "signed_id",
    ),
    "a dot in the id": Fault(
        "_notifications.py",
        """if not theirs or not message_id or not message_id.isascii() or "." in message_id:
        return None""",
        "if not theirs or not message_id or not message_id.isascii():\n        return None",
        "webhooks",
        "signed_id",
    ),
    "a repeated notification counts twice": Fault(
        "_notifications.py",
        "self._ids[message_id] = None",
        "pass",
        "webhooks",
        "Inbox._is_repeated",
    ),
    "an unsigned id silences a push": Fault(
        "_notifications.py",
        "signed or own_id",
        'headers.get("webhook-id", own_id)',
        "webhooks",
        "Inbox.judge",
    ),
    "an empty secret": Fault(
        "webhooks.py",
        "(isinstance(value, str) and value for value in listed)",
        "(isinstance(value, str) for value in listed)",
        "webhooks",
        "_listed",
    ),
}
