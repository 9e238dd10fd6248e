"""The caller's decisions about a push that is IN_DOUBT: resend, abandon or bind.

A decision is recorded before it takes effect. Once recording has begun, the decision is carried
out even if the caller is cancelled.
"""

from __future__ import annotations

import logging

from integration_sdk._http import requests
from integration_sdk._push import outcomes, submissions
from integration_sdk._push.evidence import in_lane
from integration_sdk._push.push import Push
from integration_sdk._push.push_protocol import PushProtocol
from integration_sdk._push.sender import Sender
from integration_sdk._push.tracker import PushTracker
from integration_sdk._store.row import Intent
from integration_sdk.errors import ClientClosed, ConfigurationError, JournalError
from integration_sdk.models import PushRequest

logger = logging.getLogger("integration_sdk.pushes")


async def bind(tracker: PushTracker, protocol: PushProtocol, intent_id: str, key: str) -> Push:
    """Follow the push in doubt under *key*, which the caller has found."""
    requests.segment("bind", key)
    before = protocol.ledger.get(intent_id)
    if before is None or intent_id not in tracker.doubted:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here")
    await _check_key(protocol, before, key)
    return await tracker.tasks.see_through(_bind(tracker, protocol, intent_id, key))


async def _bind(tracker: PushTracker, protocol: PushProtocol, intent_id: str, key: str) -> Push:
    _check_open(protocol)
    push = tracker.doubted.pop(intent_id, None)
    if push is None:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here any more")
    try:
        intent = await protocol.bind(intent_id, key)
    except BaseException:
        tracker.doubted[intent_id] = push
        raise
    again = push if push.outcome is None else tracker.again(push.request)
    tracker.follow(again, intent, submissions.recorded_operation(intent))
    return again


async def _check_key(protocol: PushProtocol, intent: Intent, key: str) -> None:
    """Reject a mistyped key before the decision, which is final, is recorded."""
    found = await protocol.driver.pushes.read_singly(intent.lane.company_id, (key,))
    if not found:
        raise ConfigurationError(f"push {key} cannot be read at the service; nothing is decided")
    if not in_lane(found[0], intent.lane, protocol.policy.path_names):
        raise ConfigurationError(f"push {key} went to another connection or data type")


async def abandon(tracker: PushTracker, protocol: PushProtocol, intent_id: str) -> None:
    """Give up a push in doubt; it stays IN_DOUBT."""
    await tracker.tasks.see_through(_abandon(tracker, protocol, intent_id))


async def _abandon(tracker: PushTracker, protocol: PushProtocol, intent_id: str) -> None:
    _check_open(protocol)
    _forget(tracker, await protocol.abandon(intent_id))


async def give_back(tracker: PushTracker, protocol: PushProtocol, intent_id: str) -> PushRequest:
    """Free the reference of a push that timed out, and return its request."""
    _check_open(protocol)
    return await tracker.tasks.see_through(protocol.give_back(intent_id))


async def resend(sender: Sender, intent_id: str) -> Push:
    """Send a push in doubt once more; it keeps its reference throughout."""
    tracker, protocol = sender.tracker, sender.protocol
    before = protocol.ledger.get(intent_id)
    if before is None:
        raise ConfigurationError(f"intent {intent_id} is not in doubt here")
    while holder := tracker.references.holder(before.reference):
        await holder.push._next_change()
    push = tracker.doubted.get(intent_id)
    again = Push(push.request if push else protocol.request(before))
    tracker.references.take(again, before)
    return await tracker.tasks.see_through(_resend(sender, before, again))


async def _resend(sender: Sender, before: Intent, again: Push) -> Push:
    tracker, protocol = sender.tracker, sender.protocol
    try:
        _check_open(protocol)
        intent = await protocol.resend(before.id, *sender.new_ids())
    except BaseException:
        tracker.references.let_go(again)
        again._wake()
        tracker.pass_on(again, outcomes.in_doubt(again.request, before))
        raise
    tracker.enter(again)
    _forget(tracker, protocol.ledger.get(before.id) or before)
    again.intent = intent.id
    await sender.resume(again, intent)
    return again


async def resend_missing(sender: Sender, push: Push, intent: Intent) -> None:
    """Send a push once more that no list shows; it keeps its reference, and has one outcome."""
    tracker, protocol = sender.tracker, sender.protocol
    stopped = tracker.stopped is not None or protocol.driver.closing.is_set()
    if stopped or not protocol.may_resend(intent.id):  # a listing may have found it meanwhile
        tracker.doubt_again(push, protocol.ledger.get(intent.id) or intent)
        return
    try:
        again = await protocol.resend(intent.id, *sender.new_ids())
    except JournalError as error:
        logger.warning("%s is not sent again, since that was not recorded: %s", intent, error)
        tracker.doubt_again(push, protocol.ledger.get(intent.id) or intent)
        return
    logger.warning("no list shows %s: it is sent again as intent %s", intent, again.id)
    push.intent = again.id
    await sender.resume(push, again)


def _check_open(protocol: PushProtocol) -> None:
    if protocol.driver.closing.is_set():
        raise ClientClosed("this coordinator's block has been left")


def _forget(tracker: PushTracker, decided: Intent) -> None:
    """Stop searching for the push; if it has no outcome yet, it becomes IN_DOUBT."""
    push = tracker.doubted.pop(decided.id, None)
    if push is not None:
        tracker.settle(push, outcomes.in_doubt(push.request, decided))
