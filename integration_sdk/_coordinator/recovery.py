"""Continues what an earlier run left in the journal.

Pushes that were sent are followed or searched for, those that never left are sent, and each
holds its reference from the start.
"""

from __future__ import annotations

from attrs import evolve

from integration_sdk._coordinator.desk import Desk
from integration_sdk._coordinator.push import Push
from integration_sdk._sansio.pushing import outcomes, submissions
from integration_sdk._sansio.pushing.intents import Intent
from integration_sdk.errors import ConfigurationError, InvalidRecord


async def recover(desk: Desk) -> list[Push]:
    """Continue what an earlier run left, and return its pushes."""
    found = await desk.delivery.recover()
    for intent in desk.delivery.ledger.doubted():
        desk.doubted[intent.id] = _revived(desk, intent)
    polled = [_revived(desk, intent) for intent in found.poll]
    for push, intent in zip(polled, found.poll, strict=True):
        desk.follow(push, intent, submissions.recorded_operation(intent))
    sent = [_revived(desk, intent) for intent in found.send]
    for push, intent in zip(sent, found.send, strict=True):
        desk.tasks.start(send(desk, push, intent))
    return [*desk.doubted.values(), *polled, *sent]


def _revived(desk: Desk, intent: Intent) -> Push:
    push = desk.again(submissions.from_record(intent, exact=desk.poller.exact))
    push.intent = intent.id
    desk.references.take(push, intent)
    return push


async def send(desk: Desk, push: Push, intent: Intent) -> None:
    """Send an intent that has already been recorded."""
    try:
        call = submissions.to_request(desk.dialect, push.request, {}, intent.idempotency_key)
    except (InvalidRecord, ConfigurationError) as error:
        desk.settle(push, outcomes.invalid(push.request, error))
        return
    await desk.deliver(push, evolve(call, body=intent.payload), intent)
