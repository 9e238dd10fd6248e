"""One push per reference at a time, so that no record is sent by two.

A push holds its reference from before the journal is asked about it until its outcome; what
was recovered holds its references from the start. A second push of the same record joins the
holder and shares what becomes of it. One of another record waits, or is refused.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from attrs import Factory, define

from integration_sdk._coordinator.push import Push
from integration_sdk._sansio.pushing import submissions
from integration_sdk._sansio.pushing.intents import Intent


class Holder(NamedTuple):
    """The push that a reference stands for now, and what it asks for."""

    push: Push
    asks: tuple[object, ...]


@define
class References:
    """The references that are taken."""

    _by_reference: dict[str, Holder] = Factory(dict)

    def take(self, push: Push, intent: Intent) -> None:
        """Let *push* have the reference of *intent*, if that has one."""
        if intent.reference is not None:
            self._by_reference[intent.reference] = Holder(push, intent.asks)

    def inherit(self, push: Push, heir: Push) -> None:
        """Let *heir* have the reference in the place of *push*, if that has it."""
        reference = self._held_by(push)
        if reference is not None:
            self._by_reference[reference] = self._by_reference[reference]._replace(push=heir)

    def let_go(self, push: Push) -> None:
        """Let go of the reference of *push*, if that has it."""
        reference = self._held_by(push)
        if reference is not None:
            del self._by_reference[reference]

    def _held_by(self, push: Push) -> str | None:
        holder = self.holder(push.request.reference)
        return push.request.reference if holder is not None and holder.push is push else None

    def holder(self, reference: str | None) -> Holder | None:
        """Return who has *reference*; nobody has what is no text."""
        return self._by_reference.get(reference) if isinstance(reference, str) else None

    async def take_or_join(
        self, push: Push, intent: Intent, doubted: Container[str]
    ) -> Push | None:
        """Return the push that has the reference for this very record; None once *push* has it.

        Another record waits until it is clear whether the holder's exists.

        Raises:
            ConfigurationError: The reference is that of another record, which may exist.
        """
        while holder := self.holder(intent.reference):
            if holder.asks == intent.asks:
                return holder.push
            if holder.push.key is not None or holder.push.intent in doubted:
                raise submissions.another_record(intent.reference)
            await holder.push._next_change()
        self.take(push, intent)
        return None
