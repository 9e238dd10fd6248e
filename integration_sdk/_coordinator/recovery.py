"""Continues what an earlier run left in the journal.

Pushes that were sent are followed or searched for, those that never left are sent, and each
holds its reference from the start.
"""

from __future__ import annotations

from integration_sdk._coordinator.desk import Desk
from integration_sdk._coordinator.push import Push
from integration_sdk._coordinator.sender import Sender
from integration_sdk._sansio.pushing import submissions
from integration_sdk._sansio.pushing.intents import Intent


async def recover(sender: Sender) -> list[Push]:
    """Continue what an earlier run left, and return its pushes."""
    desk = sender.desk
    found = await desk.delivery.recover()
    for intent in desk.delivery.ledger.doubted():
        desk.doubted[intent.id] = _revived(desk, intent)
    polled = [_revived(desk, intent) for intent in found.poll]
    for push, intent in zip(polled, found.poll, strict=True):
        desk.follow(push, intent, submissions.recorded_operation(intent))
    sent = [_revived(desk, intent) for intent in found.send]
    for push, intent in zip(sent, found.send, strict=True):
        desk.tasks.start(sender.resume(push, intent))
    return [*desk.doubted.values(), *polled, *sent]


def _revived(desk: Desk, intent: Intent) -> Push:
    push = desk.again(submissions.from_record(intent, exact=desk.poller.exact))
    push.intent = intent.id
    desk.references.take(push, intent)
    return push
