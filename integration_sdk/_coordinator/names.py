"""Names of pushes that are about to be sent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from uuid import uuid4

from attrs import Factory, define


@define(eq=False)
class Names:
    """Makes the id and the idempotency key of each push.

    Args:
        keyed: Whether the service knows idempotency keys.
        durable: Whether another run may see the ids.
    """

    keyed: bool
    durable: bool
    _numbers: Iterator[int] = Factory(count)

    def new(self) -> tuple[str, str | None]:
        """Return a new intent id, and an idempotency key (the same id, or None)."""
        if self.keyed:
            key = str(uuid4())
            return key, key
        return (str(uuid4()) if self.durable else f"push-{next(self._numbers)}"), None
