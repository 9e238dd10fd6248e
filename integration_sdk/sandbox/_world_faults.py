"""Faults that change the world a call meets: other sizes, other writers, other fates of pushes.

The call itself goes through; what it finds is not what its caller expects.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, Literal, Unpack

from integration_sdk.sandbox._call import Answer, Call, Problem, decode, encode
from integration_sdk.sandbox._companies import new_uuid
from integration_sdk.sandbox._notice_faults import PUSHES, NoticeFaults
from integration_sdk.sandbox._rules import Proceed, Rule, Scope, Seconds

DATA_LISTS = re.compile(r"GET /companies/[^/]+/data/(?!bankAccounts)[^/]+$")


class WorldFaults(NoticeFaults):
    """The faults that concern lists, and what becomes of pushes."""

    def cap_page_size(self, size: int = 2000, **scope: Unpack[Scope]) -> Rule:
        """Pages hold at most *size* items, whatever was asked for."""

        def change(call: Call) -> None:
            call.page_size_cap = size

        return self._changed(change, scope)

    def list_lag(self, seconds: float, **scope: Unpack[Scope]) -> Rule:
        """Pushes appear in the list *seconds* after their request."""

        def change(call: Call) -> None:
            call.list_lag = seconds

        return self._changed(change, scope)

    def push_seconds(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Asynchronous platforms take *seconds* for a push."""
        draw = self._draw(seconds)

        def change(call: Call) -> None:
            call.push_seconds = draw

        return self._changed(change, scope)

    def fail_next_push(
        self, message: str, *, item: str | None = None, **scope: Unpack[Scope]
    ) -> Rule:
        """The next push (or ``times=``) fails for the reason *message*."""

        def change(call: Call) -> None:
            call.push_failure = Problem(item, message, "PlatformValidator")

        scope.setdefault("times", 1)
        scope.setdefault("route", PUSHES)
        return self._changed(change, scope)

    def foreign_writer(
        self, record: Mapping[str, Any], *, before: bool = True, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else pushes *record* in the lane of a push, *before* or after it."""
        scope.setdefault("times", 1)
        scope.setdefault("route", PUSHES)

        async def act(call: Call, proceed: Proceed) -> Answer:
            if before:
                call.service.push_by_another(call.segments, encode(record))
            answer = await proceed()
            if not before:
                call.service.push_by_another(call.segments, encode(record))
            return answer

        return self.add(act, **scope)

    def drift(
        self,
        *,
        insert: int = 0,
        delete: int = 0,
        at: Literal["front", "end", "anywhere"] = "front",
        **scope: Unpack[Scope],
    ) -> Rule:
        """Records come (*insert*) and go (*delete*) in a data list before each read of it."""
        scope.setdefault("route", DATA_LISTS)
        chance = random.Random(self._chance.random())

        def place(length: int) -> int:
            return {"front": 0, "end": length, "anywhere": chance.randrange(length + 1)}[at]

        def change(call: Call) -> None:
            records = call.service.data_set(call.segments[1], call.segments[3])
            for _ in range(min(delete, len(records))):
                records.delete_at(min(place(len(records)), len(records) - 1))
            for _ in range(insert):
                like = decode(records.sample())
                records.insert(place(len(records)), like | {"id": new_uuid(chance)})

        return self._changed(change, scope)
