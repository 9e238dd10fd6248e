"""Faults that change the world: page sizes, concurrent writers, outcomes of pushes.

The call itself succeeds, but its result is not what the caller expects. How a push ends, and how
that is notified, is decided when the push is accepted, so such a fault applies to pushes made
while it is in force.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

from attrs import evolve

from integration_sdk.sandbox._allowed import Count, Duration, Whole
from integration_sdk.sandbox._call import (
    Answer,
    Call,
    Forgery,
    Notice,
    Notices,
    Problem,
    World,
    decode,
)
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._companies import new_uuid
from integration_sdk.sandbox._faults.rules import Proceed, Rule, Rules, Scope, Seconds

PUSHES = re.compile(r"(POST|PUT|DELETE) .*/push/")
PUSH_LIST = re.compile(r"GET /companies/[^/]+/push$")
DATA_LISTS = re.compile(r"GET /companies/[^/]+/data/(?!bankAccounts)[^/]+$")


class WorldFaults(Rules):
    """Faults that concern lists, the outcomes of pushes, and notifications of them."""

    # ------------------------------------------------------------------ lists

    def cap_page_size(self, size: Count = 2000, **scope: Unpack[Scope]) -> Rule:
        """Pages hold at most *size* items, whatever was asked for."""
        return self._changed(lambda world: evolve(world, page_size_cap=size), scope)

    def list_lag(self, seconds: Duration, **scope: Unpack[Scope]) -> Rule:
        """Pushes appear in the list *seconds* after their request."""
        return self._changed(lambda world: evolve(world, list_lag=seconds), scope, only=PUSH_LIST)

    def drift(
        self,
        *,
        insert: Whole = 0,
        edit: Whole = 0,
        delete: Whole = 0,
        at: Literal["front", "end", "anywhere"] = "front",
        **scope: Unpack[Scope],
    ) -> Rule:
        """Records of a data list come, change and go before each read of it.

        What comes or changes has its ``modifiedDate`` from the sandbox's clock, in whole seconds
        as after a push.
        """
        if not insert and not edit and not delete:
            raise ValueError("say insert=, edit= or delete=, at least 1")
        chance = random.Random(self._chance.random())

        def place(length: int) -> int:
            return {"front": 0, "end": length, "anywhere": chance.randrange(length + 1)}[at]

        async def act(call: Call, proceed: Proceed) -> Answer:
            records = call.service.data_set(call.segments[1], call.segments[3])
            stamp = iso(call.now, digits=0)
            stamps = {"modifiedDate": stamp, "sourceModifiedDate": stamp}
            for _ in range(min(delete, len(records))):
                records.delete_at(min(place(len(records)), len(records) - 1))
            edited = min(edit, len(records))
            first = max(place(len(records)) - edited, 0)
            for position in range(first, first + edited):
                records.edit_at(position, stamps)
            for _ in range(insert):
                like = decode(records.sample())
                records.insert(place(len(records)), like | stamps | {"id": new_uuid(chance)})
            return await proceed()

        return self._add(act, scope, only=DATA_LISTS)

    # ------------------------------------------------------------------ pushes

    def push_seconds(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Asynchronous platforms take *seconds* for a push."""
        draw = self._draw(seconds)
        return self._changed(lambda world: evolve(world, push_seconds=draw), scope, only=PUSHES)

    def fail_next_push(
        self, message: str, *, item: str | None = None, **scope: Unpack[Scope]
    ) -> Rule:
        """The next push, or the next ``times=``, fails with *message*."""
        scope.setdefault("times", 1)
        problem = Problem(item, message, "PlatformValidator")
        return self._changed(lambda world: evolve(world, push_failure=problem), scope, only=PUSHES)

    def late_effect(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Pushes with a deadline are TimedOut, and take effect *seconds* after it all the same.

        Only in the ``published`` dialect, whose service may do so once the platform has the push.

        Raises:
            ValueError: The dialect is the document's, which guarantees that this never happens.
        """
        if not self._published:
            raise ValueError(
                'late_effect needs dialect="published": the interface document guarantees that '
                "no push is processed after its deadline"
            )
        draw = self._draw(seconds)
        return self._changed(lambda world: evolve(world, late_effect=draw), scope, only=PUSHES)

    def foreign_writer(
        self, record: Mapping[str, Any], *, before: bool = True, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else pushes *record* to the same place as a push, *before* or after it."""
        scope.setdefault("times", 1)

        async def act(call: Call, proceed: Proceed) -> Answer:
            if before:
                _push_by_another(call, record)
            answer = await proceed()
            if not before:
                _push_by_another(call, record)
            return answer

        return self._add(act, scope, only=PUSHES)

    # ------------------------------------------------------------------ notifications

    def lose_notifications(self, **scope: Unpack[Scope]) -> Rule:
        """Subscribers are not notified of the ends of these pushes."""
        return self._told(lambda notices: (), scope)

    def double_notifications(self, copies: Count = 2, **scope: Unpack[Scope]) -> Rule:
        """Each notification is sent *copies* times, with the same id."""
        return self._told(lambda notices: notices * copies, scope)

    def delay_notifications(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Each notification is sent *seconds* late; with a span they overtake each other."""
        draw = self._draw(seconds)
        return self._told(
            lambda notices: tuple(evolve(one, delay=one.delay + draw()) for one in notices), scope
        )

    def forge_notifications(
        self, how: Forgery = "signature", *, instead: bool = False, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else sends a notification before the true one, or *instead* of it.

        ``signature``: its proof of origin is invalid. ``secret``: it is signed with another secret.
        ``key``: it is authentic, but names a push that does not exist. ``early``: it is
        authentic, but claims Success as soon as the push is recorded.
        """
        forged = Notice(forged=how)
        return self._told(lambda notices: (forged, *(() if instead else notices)), scope)

    # ------------------------------------------------------------------ how

    def _told(self, change: Callable[[Notices], Notices], scope: Scope) -> Rule:
        def changed(world: World) -> World:
            return evolve(world, notices=change(world.notices))

        return self._changed(changed, scope, only=PUSHES)

    def _changed(
        self, change: Callable[[World], World], scope: Scope, *, only: re.Pattern[str] | None = None
    ) -> Rule:
        async def act(call: Call, proceed: Proceed) -> Answer:
            call.world = change(call.world)
            return await proceed()

        return self._add(act, scope, only=only)


def _push_by_another(call: Call, record: Mapping[str, Any]) -> None:
    _, company_id, _, connection_id, _, data_type, *_ = call.segments
    call.service.push_by_another(company_id, connection_id, data_type, record)
