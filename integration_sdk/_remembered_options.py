"""Push options, which a client remembers for some minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from attrs import Factory, define

from integration_sdk._cache import Cache
from integration_sdk._http.statuses import Meaning, Scope, row, scope_of
from integration_sdk.errors import ApiError, fresh_copy

if TYPE_CHECKING:
    from integration_sdk._options.check import PushOptions

OPTIONS_TTL = 300.0
"""Seconds for which push options are remembered."""
REFUSAL_TTL = 30.0
"""Seconds for which it is remembered that there are no push options."""


@define
class RememberedOptions:
    """Push options by request target. Tasks that want the same options ask one at a time."""

    _options: Cache[str, PushOptions] = Factory(lambda: Cache(ttl=OPTIONS_TTL))
    _refusals: Cache[str, ApiError] = Factory(lambda: Cache(ttl=REFUSAL_TTL))
    _asking: WeakValueDictionary[str, asyncio.Lock] = Factory(WeakValueDictionary)

    async def get(
        self, target: str, ask: Callable[[], Any], *, refresh: bool = False
    ) -> PushOptions:
        """Return the remembered options for *target*, or else those that *ask* returns.

        Raises:
            ApiError: The service has no options for *target* or refuses them, now or recently.
        """
        if refresh:
            self._options.forget(target)
            self._refusals.forget(target)
        async with self._asking.setdefault(target, asyncio.Lock()):
            return self._remembered(target) or await self._asked(target, ask)

    def _remembered(self, target: str) -> PushOptions | None:
        refusal = self._refusals.get(target, _now())
        if refusal is not None:
            raise fresh_copy(refusal)
        return self._options.get(target, _now())

    async def _asked(self, target: str, ask: Callable[[], Any]) -> PushOptions:
        try:
            options: PushOptions = await ask()
        except ApiError as error:
            # A key or an account is refused everything, and will be asked for options again.
            of_account = scope_of(error.status) in {Scope.KEY, Scope.ACCOUNT}
            if row(error.status).read is Meaning.REFUSED and not of_account:
                self._refusals.put(target, fresh_copy(error), _now())
            raise
        self._options.put(target, options, _now())
        return options


def _now() -> float:
    return asyncio.get_running_loop().time()
