"""Who has a reference: one push at a time, so that one record is not sent by two.

A reference is taken before the journal is asked what it stands for, and let go of with the
outcome. What recovery took over has its references from the start. Whoever pushes a reference
that is taken joins its owner, and shares what becomes of it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from attrs import Factory, define

from integration_sdk._coordinator.push import Push
from integration_sdk._sansio.pushing import submissions
from integration_sdk._sansio.pushing.intents import Intent


class Owner(NamedTuple):
    """The push that a reference stands for now, and what it asks for."""

    push: Push
    asks: tuple[object, ...]


@define
class Owners:
    """The references that are taken."""

    _by_reference: dict[str, Owner] = Factory(dict)

    def take(self, push: Push, intent: Intent) -> None:
        """Let *push* have the reference of *intent*, if that has one."""
        if intent.reference is not None:
            self._by_reference[intent.reference] = Owner(push, intent.asks)

    def inherit(self, push: Push, heir: Push) -> None:
        """Let *heir* have the reference in the place of *push*, if that has it."""
        owner = self.of(push.request.reference)
        if owner is not None and owner.push is push:
            self._by_reference[push.request.reference or ""] = owner._replace(push=heir)

    def let_go(self, push: Push) -> None:
        """Let go of the reference, where *push* is the one that has it."""
        owner = self.of(push.request.reference)
        if owner is not None and owner.push is push:
            del self._by_reference[push.request.reference or ""]

    def of(self, reference: str | None) -> Owner | None:
        """Return who has *reference*; nobody has what is no text."""
        return self._by_reference.get(reference) if isinstance(reference, str) else None

    async def take_or_find(
        self, push: Push, intent: Intent, doubted: Container[str]
    ) -> Push | None:
        """Return the push that has the reference for this very record; None once *push* has it.

        Another record waits until it is clear whether the owner's exists.

        Raises:
            ConfigurationError: The reference is that of another record, which may exist.
        """
        while owner := self.of(intent.reference):
            if owner.asks == intent.asks:
                return owner.push
            if owner.push.key is not None or owner.push.intent in doubted:
                raise submissions.another_record(intent.reference)
            await owner.push.change()
        self.take(push, intent)
        return None
