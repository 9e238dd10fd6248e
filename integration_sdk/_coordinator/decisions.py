"""The caller's decisions about a push that is IN_DOUBT: resend, abandon or bind.

A decision is recorded before it takes effect. Once recording has begun, the decision is carried
out even if the caller is cancelled.
"""

from __future__ import annotations

from integration_sdk._coordinator.desk import Desk
from integration_sdk._coordinator.push import Push
from integration_sdk._coordinator.sender import Sender
from integration_sdk._sansio import requests
from integration_sdk._sansio.pushing import outcomes, reconcile, submissions
from integration_sdk._sansio.pushing.evidence import in_lane
from integration_sdk._sansio.pushing.intents import Intent
from integration_sdk.errors import ClientClosed, ConfigurationError


async def bind(desk: Desk, intent_id: str, key: str) -> Push:
    """Follow the push in doubt under *key*, which the caller has found."""
    requests.segment("bind", key)
    before = desk.delivery.ledger.get(intent_id)
    if before is None or intent_id not in desk.doubted:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here")
    await _check_key(desk, before, key)
    return await desk.tasks.see_through(_bind(desk, intent_id, key))


async def _bind(desk: Desk, intent_id: str, key: str) -> Push:
    _check_open(desk)
    push = desk.doubted.pop(intent_id, None)
    if push is None:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here any more")
    try:
        intent = await desk.delivery.drive(reconcile.bind(desk.delivery.ledger, intent_id, key))
    except BaseException:
        desk.doubted[intent_id] = push
        raise
    again = push if push.outcome is None else desk.again(push.request)
    desk.follow(again, intent, submissions.recorded_operation(intent))
    return again


async def _check_key(desk: Desk, intent: Intent, key: str) -> None:
    """Reject a mistyped key before the decision, which is final, is recorded."""
    found = await desk.delivery.pushes.read_singly(intent.lane.company_id, (key,))
    if not found:
        raise ConfigurationError(f"push {key} cannot be read at the service; nothing is decided")
    if not in_lane(found[0], intent.lane, desk.dialect.path_names):
        raise ConfigurationError(f"push {key} went to another connection or data type")


async def abandon(desk: Desk, intent_id: str) -> None:
    """Give up a push in doubt; it stays IN_DOUBT."""
    await desk.tasks.see_through(_abandon(desk, intent_id))


async def _abandon(desk: Desk, intent_id: str) -> None:
    _check_open(desk)
    _forget(desk, await desk.delivery.drive(reconcile.abandon(desk.delivery.ledger, intent_id)))


async def resend(sender: Sender, intent_id: str) -> Push:
    """Send a push in doubt once more; it keeps its reference throughout."""
    desk = sender.desk
    before = desk.delivery.ledger.get(intent_id)
    if before is None:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here")
    while holder := desk.references.holder(before.reference):
        await holder.push._next_change()
    push = desk.doubted.get(intent_id)
    exact = desk.poller.exact
    again = Push(push.request if push else submissions.from_record(before, exact=exact))
    desk.references.take(again, before)
    return await desk.tasks.see_through(_resend(sender, before, again))


async def _resend(sender: Sender, before: Intent, again: Push) -> Push:
    desk = sender.desk
    try:
        _check_open(desk)
        intent = await _on_record(sender, before.id)
    except BaseException:
        desk.references.let_go(again)
        again._wake()
        desk.pass_on(again, outcomes.in_doubt(again.request, before))
        raise
    desk.enter()
    _forget(desk, desk.delivery.ledger.get(before.id) or before)
    again.intent = intent.id
    await sender.resume(again, intent)
    return again


async def _on_record(sender: Sender, intent_id: str) -> Intent:
    new_id, key = sender.new_ids()
    delivery = sender.desk.delivery
    machine = reconcile.resend(delivery.ledger, intent_id, new_id=new_id, idempotency_key=key)
    return await delivery.drive(machine)


def _check_open(desk: Desk) -> None:
    if desk.delivery.closing.is_set():
        raise ClientClosed("this coordinator's block has been left")


def _forget(desk: Desk, decided: Intent) -> None:
    """Stop searching for the push; if it has no outcome yet, it becomes IN_DOUBT."""
    push = desk.doubted.pop(decided.id, None)
    if push is not None:
        desk.settle(push, outcomes.in_doubt(push.request, decided))
