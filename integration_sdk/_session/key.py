"""The API key: kept where no repr, log, traceback or pickle can show it.

The key and the header made of it live inside objects whose repr hides them, and are only
ever unwrapped in a function that returns at once. So a traceback printed with its local
variables shows ``<hidden>``, whether its frames are ours or aiohttp's.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from attrs import define, field

from integration_sdk._strays import is_cancelled
from integration_sdk.errors import ConfigurationError, NotSent

ApiKeySource = str | Callable[[], str | Awaitable[str]]
MASK = "<hidden>"
MASKED = MASK.encode()


class Hidden(str):
    """Text that does not show itself: repr is masked, pickling and copying are refused."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASK

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("an API key cannot be pickled")


def hide(source: ApiKeySource) -> ApiKeySource:
    """Return *source*, safe to be a local variable: a key is hidden, a callable stays as it is."""
    return Hidden(source) if isinstance(source, str) else source


def check_key(key: object) -> Hidden:
    """Return the key, hidden.

    Raises:
        ConfigurationError: It cannot be a key; the message does not show it.
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
    """The key in use, and where the next one comes from.

    A key that a callable returned is used until the service answers 401.
    """

    _source: ApiKeySource
    header: Hidden | None = field(init=False, default=None)
    """The Authorization header; None until the key was asked for."""
    _secrets: tuple[bytes, ...] = field(init=False, default=())

    @classmethod
    def of(cls, source: ApiKeySource) -> ApiKey:
        """Return the key that *source* is or returns.

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
        """Whether there can be another key after this one."""
        return callable(self._source)

    async def ask(self, refused: Hidden | None) -> Hidden:
        """Return a header other than *refused*; call the source if the present one is that.

        Raises:
            ConfigurationError: The source returned something that cannot be a key.
            NotSent: The source raised an exception, which is the cause.
        """
        if self.header is None or (self.header is refused and self.rotates):
            return self._use(check_key(await self._from_source()))
        return self.header

    def _use(self, key: Hidden) -> Hidden:
        """Take *key* into use and return the header. Source: "Authentication", 2."""
        encoded = b64encode(key.encode())
        self._secrets = encoded, key.encode()
        self.header = Hidden(f"Basic {encoded.decode()}")
        return self.header

    async def _from_source(self) -> object:
        if not callable(self._source):
            return self._source
        try:
            given = self._source()
            return hide(await given if isinstance(given, Awaitable) else given)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            raise NotSent(f"the api_key function raised {type(error).__name__}") from error

    def redact(self, body: bytes, *, shortest: int) -> bytes:
        """Return *body* without the key, in case the service echoes it.

        A key of fewer than *shortest* characters stays: ``test`` is a word like any other.
        """
        for secret in self._secrets:
            if len(secret) >= shortest:
                body = body.replace(secret, MASKED)
        return body
