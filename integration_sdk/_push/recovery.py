"""Continues what an earlier run left in the journal.

Pushes that were sent are followed or searched for, those that never left are sent, and each
holds its reference from the start.
"""

from __future__ import annotations

import logging

from integration_sdk._push import submissions
from integration_sdk._push.push import Push
from integration_sdk._push.sender import Sender
from integration_sdk._store.row import Intent

logger = logging.getLogger("integration_sdk.pushes")


async def recover(sender: Sender) -> list[Push]:
    """Continue what an earlier run left, and return its pushes."""
    tracker, protocol = sender.tracker, sender.protocol
    found = await protocol.recover()
    for intent in protocol.ledger.doubted():
        tracker.doubted[intent.id] = _revived(sender, intent)
    if tracker.doubted:
        logger.warning(
            "pushes that earlier runs left in doubt: %d; they are searched for, see `in_doubt`",
            len(tracker.doubted),
        )
    polled = [_revived(sender, intent) for intent in found.poll]
    for push, intent in zip(polled, found.poll, strict=True):
        tracker.follow(push, intent, submissions.recorded_operation(intent))
    sent = [_revived(sender, intent) for intent in found.send]
    for push, intent in zip(sent, found.send, strict=True):
        tracker.tasks.start(sender.resume(push, intent))
    return [*tracker.doubted.values(), *polled, *sent]


def _revived(sender: Sender, intent: Intent) -> Push:
    push = sender.tracker.again(sender.protocol.request(intent))
    push.intent = intent.id
    sender.tracker.references.take(push, intent)
    return push
