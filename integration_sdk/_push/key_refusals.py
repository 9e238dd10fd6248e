"""Notices that the service does not accept the API key any more."""

from __future__ import annotations

from math import inf
from typing import Final

from attrs import define

IN_A_ROW: Final = 3
"""Refusals of the key after which nothing more is sent."""


@define
class KeyRefusals:
    """Counts the answers of 401 since the last push that was accepted.

    Of pushes that were under way together only the first counts: the client may have got a new
    key from the caller since they left.
    """

    _count: int = 0
    _last: float = -inf

    def forget(self) -> None:
        """Start anew: a push was accepted."""
        self._count = 0

    def are_final(self, began: float, now: float) -> bool:
        """Count a refusal of a push that *began* then; return whether to give up."""
        if began >= self._last:
            self._count, self._last = self._count + 1, now
        return self._count >= IN_A_ROW
