"""Names of pushes that are about to be sent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

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
            key = _guid()
            return key, key
        return (_guid() if self.durable else f"push-{next(self._numbers)}"), None


def _guid() -> str:
    """Return a random GUID; `uuid4` would spend three times as long on each push."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
