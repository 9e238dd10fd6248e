"""A cache whose values expire."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from attrs import Factory, define, field

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define
class Cache(Generic[K, V]):
    """A mapping of limited size whose values expire.

    Attributes:
        ttl: Seconds until a value expires.
        limit: Maximum number of values; the oldest is removed first.
    """

    ttl: float
    limit: int = field(default=1000, kw_only=True)
    _held: dict[K, tuple[float, V]] = field(default=Factory(dict), init=False)

    def get(self, key: K, now: float) -> V | None:
        """Return the value of *key*; None if there is none or it has expired."""
        put_at, value = self._held.get(key, (None, None))
        if put_at is None or now - put_at >= self.ttl:
            self.forget(key)
            return None
        return value

    def put(self, key: K, value: V, now: float) -> None:
        """Store *value* at time *now*, in place of an older one."""
        self.forget(key)
        while len(self._held) >= self.limit:
            self.forget(next(iter(self._held)))
        self._held[key] = (now, value)

    def forget(self, key: K) -> None:
        """Remove *key*, if present."""
        self._held.pop(key, None)

    def __len__(self) -> int:
        return len(self._held)
