"""The API key: nothing shows it, and it goes to the service alone.

The key and its header are kept in objects with a masked repr, and unwrapped only in functions
that return at once. So a traceback printed with local variables shows ``<hidden>``, in our
frames and in aiohttp's. Base URL and proxy are checked, so that the key is sent encrypted or stays
on this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from attrs import define, field
from yarl import URL

from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import ConfigurationError, NotSent

ApiKeySource = str | Callable[[], str | Awaitable[str]]
MASK: Final = "<hidden>"
SHORTEST: Final = 8  # bytes of a key that is masked in errors: ``test`` may be any word


class Hidden(str):
    """A string with a masked repr that cannot be pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASK

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("an API key cannot be pickled")


def hide(source: ApiKeySource) -> ApiKeySource:
    """Return *source* with a masked repr if it is a key."""
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


@define(eq=False)
class ApiKey:
    """The current key and its source, a key or a function that returns one.

    What a function returns is used until the service answers 401.

    Attributes:
        authorization: The header's value; None until the function has been called.

    Raises:
        ConfigurationError: The source is neither a usable key nor a function.
    """

    _source: ApiKeySource = field(converter=hide)
    authorization: Hidden | None = field(init=False, default=None)
    _secrets: tuple[bytes, ...] = field(init=False, repr=False, default=())

    def __attrs_post_init__(self) -> None:
        if not self.rotates:
            self._use(check_key(self._source))

    @property
    def rotates(self) -> bool:
        return callable(self._source)

    async def ask(self, refused: Hidden) -> Hidden:
        """Return `authorization`; call the source if there is none yet or it is *refused*.

        Raises:
            ConfigurationError: The source returned an invalid key.
            NotSent: The source raised an exception, which is chained.
        """
        known, source = self.authorization, self._source
        if isinstance(source, str) or (known is not None and known is not refused):
            return known or self._use(check_key(source))
        try:
            given = source()
            key = hide(await given if isinstance(given, Awaitable) else given)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and current_task_cancelled():
                raise
            raise NotSent(f"the api_key function raised {type(error).__name__}") from error
        return self._use(check_key(key))

    def _use(self, key: Hidden) -> Hidden:
        """Use *key* from now on and return its header. Source: "Authentication", 2."""
        encoded = b64encode(key.encode())
        self._secrets = encoded, key.encode()
        self.authorization = Hidden(f"Basic {encoded.decode()}")
        return self.authorization

    def redact(self, body: bytes) -> bytes:
        """Return *body* with the key masked, in case the service echoes it."""
        for secret in self._secrets:
            if len(secret) >= SHORTEST:
                body = body.replace(secret, MASK.encode())
        return body


# Where it may go


def check_base_url(text: object) -> str:
    """Return the base URL without a trailing slash.

    Raises:
        ConfigurationError: It is not an HTTP URL to which a key can be sent safely.
    """
    url = _http_url(text) if isinstance(text, str) else None
    if url is None:
        shown = _without_password(text)
        raise ConfigurationError(
            f"base_url must look like 'https://api.example.com', not {shown!r}"
        )
    if url.user is not None or url.password is not None:
        raise ConfigurationError("base_url must not hold a user name or password; pass api_key=")
    if "?" in str(text) or "#" in str(text):
        raise ConfigurationError(f"base_url {text!r} must not have a query or fragment")
    if url.scheme == "http" and not _is_loopback(url.host or ""):
        raise ConfigurationError(
            f"base_url {text!r} would send the API key unencrypted; use https:// "
            "(http:// is for this machine only)"
        )
    return str(url).rstrip("/")


def check_proxy(given: str | URL | None, base_url: str) -> URL | None:
    """Return the proxy's URL, or None for no proxy.

    Raises:
        ConfigurationError: It is not the URL of an HTTP proxy, or the proxy would see the key.
    """
    if given is None:
        return None
    url = _http_url(given)
    if url is None or ":" in (url.user or "") or not f"{url.user}{url.password}".isascii():
        raise ConfigurationError(
            "proxy must look like 'http://user:password@proxy.example.com:3128', in ASCII, "
            f"not {_without_password(given)!r}"
        )
    if base_url.startswith("http:") and not _is_loopback(url.host or ""):
        raise ConfigurationError(
            f"proxy {_without_password(given)!r} would see the API key, since base_url is "
            "http://; use https://"
        )
    return url


def _http_url(given: Any) -> URL | None:
    """Return the URL; None if it does not name an HTTP server."""
    try:
        url = URL(given.strip() if isinstance(given, str) else given)
        has_host = bool(url.host) and " " not in str(url.host)
        names_server = has_host and url.port is not None and url.scheme in {"http", "https"}
        str(url.raw_host).encode("idna")  # as the resolver will
    except (ValueError, TypeError):
        return None
    return url if names_server else None


def _without_password(given: object) -> object:
    text = str(given) if isinstance(given, URL) else given
    return text if not isinstance(text, str) or "@" not in text else text.rpartition("@")[2]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in {"localhost", "ip6-localhost"}
