"""The poller that a client shares with those derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, evolve

from integration_sdk._context import RequestContext
from integration_sdk._http import RetryPolicy

if TYPE_CHECKING:
    from integration_sdk._push.poller import Poller


@define(eq=False)
class SharedPoller:
    """The poller of a client and the clients derived from it, created on first use."""

    _context: RequestContext
    _notified: bool
    _made: Poller | None = None

    @property
    def poller(self) -> Poller:
        """The poller that these clients share."""
        if self._made is None:
            from integration_sdk._push.poller import Poller  # noqa: PLC0415 - for pushes only

            # A poll that fails is repeated when the schedule says so, which keeps the budget.
            once = evolve(self._context.settings, retry=RetryPolicy.never())
            context = evolve(self._context, settings=once)
            self._made = Poller(
                context.send,
                context.dialect,
                notified=self._notified,
                exact=context.exact,
                rate=lambda: context.session.stats().rate,
            )
        return self._made

    async def aclose(self) -> None:
        """Stop the poller, if there is one."""
        if self._made is not None:
            await self._made.aclose()
