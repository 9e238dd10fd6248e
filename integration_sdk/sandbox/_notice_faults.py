"""Faults between the service and its subscribers.

How a push will be told is settled when it is accepted, as is what becomes of it: each method
applies to the pushes made while it is in force.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Unpack

from attrs import evolve

from integration_sdk.sandbox._call import Call, Forgery, Notice
from integration_sdk.sandbox._rules import Rule, Rules, Scope, Seconds

PUSHES = re.compile(r"(POST|PUT|DELETE) .*/push/")


class NoticeFaults(Rules):
    """The faults that concern notifications."""

    def lose_notifications(self, **scope: Unpack[Scope]) -> Rule:
        """Nobody is told how these pushes end."""

        def change(call: Call) -> None:
            call.notices = ()

        return self._told(change, scope)

    def double_notifications(self, copies: int = 2, **scope: Unpack[Scope]) -> Rule:
        """Each notification is sent so many times, with the same id."""
        if copies < 1:
            raise ValueError(f"copies must be at least 1, not {copies}")

        def change(call: Call) -> None:
            call.notices *= copies

        return self._told(change, scope)

    def delay_notifications(self, seconds: Seconds, **scope: Unpack[Scope]) -> Rule:
        """Each notification leaves *seconds* late; with a span they overtake each other."""
        draw = self._draw(seconds)

        def change(call: Call) -> None:
            call.notices = tuple(evolve(one, delay=one.delay + draw()) for one in call.notices)

        return self._told(change, scope)

    def forge_notifications(
        self, how: Forgery = "signature", *, instead: bool = False, **scope: Unpack[Scope]
    ) -> Rule:
        """Somebody else sends a notification before the true one, or *instead* of it.

        ``signature``: its proof is none. ``secret``: it is signed with another secret.
        ``key``: it is proved, and names a push that is not there. ``early``: it is proved, and
        claims Success as soon as the push is recorded.
        """
        if how not in {"signature", "secret", "key", "early"}:
            raise ValueError(f"how must be signature, secret, key or early, not {how!r}")

        def change(call: Call) -> None:
            call.notices = (Notice(forged=how), *(() if instead else call.notices))

        return self._told(change, scope)

    def _told(self, change: Callable[[Call], None], scope: Scope) -> Rule:
        scope.setdefault("route", PUSHES)
        return self._changed(change, scope)
