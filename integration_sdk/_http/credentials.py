"""The API key, hidden from reprs, logs, tracebacks and pickles.

The key and its header are kept in objects with a masked repr, and unwrapped only in functions
that return at once. So a traceback printed with local variables shows ``<hidden>``, in our
frames and in aiohttp's.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from attrs import define, field

from integration_sdk._http.masking import MASK, Secret
from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import ConfigurationError, NotSent

ApiKeySource = str | Callable[[], str | Awaitable[str]]


class Hidden(str):
    """A string with a masked repr that cannot be pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASK

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("an API key cannot be pickled")


def hide(source: ApiKeySource) -> ApiKeySource:
    """Return *source* with a masked repr if it is a key; return a callable unchanged."""
    return Hidden(source) if isinstance(source, str) else source


def check_key(key: object) -> Hidden:
    """Return the key, hidden.

    Raises:
        ConfigurationError: It is not a valid key; the message does not show it.
    """
    if not isinstance(key, str):
        raise ConfigurationError(f"the API key must be a string, not {type(key).__name__}")
    if not key.strip():
        raise ConfigurationError("the API key is empty")
    if not key.isprintable() or key != key.strip():
        raise ConfigurationError(
            "the API key has a control character, or a space or line break around it; "
            "was it read from a file together with the line end?"
        )
    if key.lower().startswith("basic "):
        raise ConfigurationError("pass the bare API key, without 'Basic ' and without base64")
    return Hidden(key)


@define(eq=False, repr=False)
class ApiKey:
    """The current key and its source.

    If the source is a callable, the key it returns is used until the service answers 401.
    """

    _source: ApiKeySource
    authorization: Hidden | None = field(init=False, default=None)
    """The Authorization header; None until the source has been called."""
    _secrets: tuple[Secret, ...] = field(init=False, default=())

    @classmethod
    def of(cls, source: ApiKeySource) -> ApiKey:
        """Return an `ApiKey` for *source*, a key or a callable that returns one.

        Raises:
            ConfigurationError: It is neither a usable key nor a callable.
        """
        source = hide(source)
        api_key = cls(source)
        if not callable(source):
            api_key._use(check_key(source))
        return api_key

    def __repr__(self) -> str:
        return f"<ApiKey {MASK}>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("an API key cannot be pickled")

    @property
    def rotates(self) -> bool:
        """Whether the source can return a new key."""
        return callable(self._source)

    async def ask(self, refused: Hidden) -> Hidden:
        """Return `authorization`; call the source if there is none yet or it is *refused*.

        Raises:
            ConfigurationError: The source returned an invalid key.
            NotSent: The source raised an exception, which is chained.
        """
        if self.authorization is None or (self.authorization is refused and self.rotates):
            return self._use(check_key(await self._from_source()))
        return self.authorization

    def _use(self, key: Hidden) -> Hidden:
        """Use *key* from now on and return its header. Source: "Authentication", 2."""
        encoded = Hidden(b64encode(key.encode()).decode())
        self._secrets = Secret.of(encoded), Secret.of(key)
        self.authorization = Hidden(f"Basic {encoded}")
        return self.authorization

    async def _from_source(self) -> object:
        if not callable(self._source):
            return self._source
        try:
            given = self._source()
            return hide(await given if isinstance(given, Awaitable) else given)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and current_task_cancelled():
                raise
            raise NotSent(f"the api_key function raised {type(error).__name__}") from error

    def redact(self, body: bytes, *, shortest: int) -> bytes:
        """Return *body* with the key masked, in case the service echoes it.

        A key shorter than *shortest* bytes is left alone: ``test`` may be part of the data.
        """
        for secret in self._secrets:
            if secret.size >= shortest:
                body = secret.masked(body)
        return body
