"""What was fetched a moment ago."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from attrs import Factory, define, field

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define
class Cache(Generic[K, V]):
    """Values that are good for a while, the newest of them.

    Attributes:
        ttl: Seconds that a value is good for.
        limit: Values held at most; the one put first goes first.
    """

    ttl: float
    limit: int = field(default=1000, kw_only=True)
    _held: dict[K, tuple[float, V]] = field(default=Factory(dict), init=False)

    def get(self, key: K, now: float) -> V | None:
        """Return the value of *key*, or None where none was put within ``ttl`` seconds."""
        put_at, value = self._held.get(key, (None, None))
        if put_at is None or now - put_at >= self.ttl:
            self.forget(key)
            return None
        return value

    def put(self, key: K, value: V, now: float) -> None:
        """Hold *value* from *now* on, in place of an older one."""
        self.forget(key)
        while len(self._held) >= self.limit:
            self.forget(next(iter(self._held)))
        self._held[key] = (now, value)

    def forget(self, key: K) -> None:
        """Let go of *key*, if it is held: the next get is None."""
        self._held.pop(key, None)

    def __len__(self) -> int:
        return len(self._held)
