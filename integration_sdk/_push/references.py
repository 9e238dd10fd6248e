"""One push per reference at a time, so that no record is sent twice.

A push takes its reference before the journal is asked about it, and holds it until its outcome;
recovered pushes hold theirs from the start. A second push of the same record joins the holder
and shares its result. A push of another record waits, or is refused.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from attrs import Factory, define

from integration_sdk._push import submissions
from integration_sdk._push.push import Push
from integration_sdk._store.row import Intent


class Holder(NamedTuple):
    """The push that holds a reference, and the `Intent.identity` of that push."""

    push: Push
    identity: tuple[object, ...]


@define
class References:
    """The references in use."""

    _by_reference: dict[str, Holder] = Factory(dict)

    def take(self, push: Push, intent: Intent) -> None:
        """Give *push* the reference of *intent*, if it has one."""
        if intent.reference is not None:
            self._by_reference[intent.reference] = Holder(push, intent.identity)

    def hand_over(self, push: Push, to: Push) -> None:
        """Pass the reference that *push* holds, if any, to another push."""
        reference = self._held_by(push)
        if reference is not None:
            self._by_reference[reference] = self._by_reference[reference]._replace(push=to)

    def let_go(self, push: Push) -> None:
        """Release the reference that *push* holds, if any."""
        reference = self._held_by(push)
        if reference is not None:
            del self._by_reference[reference]

    def _held_by(self, push: Push) -> str | None:
        holder = self.holder(push.request.reference)
        return push.request.reference if holder is not None and holder.push is push else None

    def holder(self, reference: str | None) -> Holder | None:
        """Return the holder of *reference*; None if it is free or no string."""
        return self._by_reference.get(reference) if isinstance(reference, str) else None

    async def take_or_join(
        self, push: Push, intent: Intent, doubted: Container[str]
    ) -> Push | None:
        """Take the reference and return None, or return its holder if that pushes this record.

        If the holder pushes another record, wait until it is clear whether that one exists.

        Raises:
            ReferenceConflict: The reference belongs to another record, which may exist.
        """
        while holder := self.holder(intent.reference):
            if holder.identity == intent.identity:
                return holder.push
            if holder.push.key is not None or holder.push.intent in doubted:
                raise submissions.another_record(intent.reference)
            await holder.push._next_change()
        self.take(push, intent)
        return None
