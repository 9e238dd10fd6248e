"""The places of the pushes that are being sent, ``max_in_flight`` of them.

A push that pauses between two attempts gives its place back meanwhile, and pushes of companies
that are held back do not count: otherwise one refused company would take all places, and stop
the pushes of all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Final, Protocol

from attrs import Factory, define, field

MOMENT: Final = 0.05
"""Seconds after a refusal until others may take the places of those that it holds back. By then
a refusal that ends the run, such as a spent quota, has ended it."""


class Refusals(Protocol):
    """What the session knows of refusals.

    Attributes:
        on_refusal: Functions that it calls after each.
    """

    on_refusal: set[Callable[[], None]]

    def held_back(self) -> Collection[str]:
        """Return the companies that are refused for now, though others may not be."""


@define(eq=False)
class Places:
    """At most *limit* at a time, not counting those of companies that are held back."""

    limit: int
    _refusals: Refusals | None = None
    _taken: Counter[str] = Factory(Counter)
    _waiting: deque[tuple[Place, asyncio.Future[None]]] = Factory(deque)

    def open(self) -> None:
        """Look again after each refusal, until `close`."""
        if self._refusals is not None:
            self._refusals.on_refusal.add(self._look_again_soon)

    def close(self) -> None:
        """Stop looking."""
        if self._refusals is not None:
            self._refusals.on_refusal.discard(self._look_again_soon)

    def is_free(self) -> bool:
        """Return whether there is a place."""
        taken = self._taken.total()
        if taken >= self.limit and self._refusals is not None:
            taken -= sum(self._taken[company] for company in self._refusals.held_back())
        return taken < self.limit

    def count(self, company_id: str, change: int) -> None:
        """Note that *company_id* has one place more, or less."""
        self._taken[company_id] += change
        if not self._taken[company_id]:
            del self._taken[company_id]
        if change < 0:
            self.look_again()

    async def wait(self, place: Place) -> None:
        """Wait until *place* is taken, first come first served."""
        if not self._waiting and self.is_free():
            self._hand_over(place)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, turn))
        try:
            await turn
        except asyncio.CancelledError:
            place.leave()  # it may have come at the same time
            raise

    def look_again(self) -> None:
        """Hand over what places there are."""
        while self._waiting and self.is_free():
            place, turn = self._waiting.popleft()
            if not turn.done():
                self._hand_over(place)
                turn.set_result(None)

    def _hand_over(self, place: Place) -> None:
        place.is_taken = True
        self.count(place.company_id, 1)

    def _look_again_soon(self) -> None:
        asyncio.get_running_loop().call_later(MOMENT, self.look_again)


@define(eq=False)
class Place:
    """One place, taken or not. Leaving it twice does no harm."""

    _places: Places
    company_id: str = ""
    is_taken: bool = field(init=False, default=False)

    async def take(self) -> Place:
        """Wait for it, and return it."""
        await self._places.wait(self)
        return self

    def leave(self) -> None:
        """Give it back."""
        if self.is_taken:
            self.is_taken = False
            self._places.count(self.company_id, -1)

    def give_to(self, company_id: str) -> None:
        """Count it for *company_id* from now on."""
        self._places.count(company_id, 1)
        self._places.count(self.company_id, -1)
        self.company_id = company_id
