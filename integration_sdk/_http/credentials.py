"""The API key: nothing shows it, and it goes to the service alone.

The key and its header are kept in objects with a masked repr, and unwrapped only in functions
that return at once. So a traceback printed with local variables shows ``<hidden>``, in our
frames and in aiohttp's. The service's answers, which may echo it, are masked. Base URL and proxy
are checked, so that it is sent encrypted or stays on this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, Self

from attrs import define, field, frozen
from yarl import URL

from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import ConfigurationError, NotSent

ApiKeySource = str | Callable[[], str | Awaitable[str]]
MASK: Final = "<hidden>"
LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


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


@frozen(repr=False)
class Secret:
    """A text to mask in JSON, whichever of its characters are escaped there.

    Writers of JSON differ: Python's escapes ``é``, PHP's ``/``, .NET's ``+``, and Gson ``=``.

    Attributes:
        size: Its length in bytes.
        run: Its longest run of letters and digits, which nobody escapes.
        spellings: Matches it.
    """

    size: int
    run: bytes
    spellings: re.Pattern[bytes]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a `Secret` for *text*."""
        run = max(re.findall("[A-Za-z0-9]*", text), key=len)
        pattern = "".join(map(_spellings, text))
        return cls(len(text.encode()), run.encode(), re.compile(pattern.encode()))

    def masked(self, body: bytes) -> bytes:
        """Return *body* with the secret masked; one without its longest run costs little."""
        return self.spellings.sub(MASK.encode(), body) if self.run in body else body


def _spellings(char: str) -> str:
    """Return a pattern of *char* as it may be spelt in JSON."""
    if char.isascii() and char.isalnum():
        return char
    units = char.encode("utf-16-be").hex()
    escape = re.sub("....", r"\\\\u\g<0>", units)
    backslash = r"\\?" if char in '"/\\' else ""
    return f"(?:{backslash}{re.escape(char)}|(?i:{escape}))"


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


# Where it may go


def check_base_url(text: object) -> str:
    """Return the base URL without a trailing slash.

    Raises:
        ConfigurationError: It is not an HTTP URL to which a key can be sent safely.
    """
    url = _http_url(text) if isinstance(text, str) else None
    if url is None:
        raise ConfigurationError(
            f"base_url must look like 'https://api.example.com', not {_without_password(text)!r}"
        )
    if url.user is not None or url.password is not None:
        raise ConfigurationError("base_url must not hold a user name or password; pass api_key=")
    if url.raw_query_string or url.raw_fragment or "?" in str(text) or "#" in str(text):
        raise ConfigurationError(f"base_url {text!r} must not have a query or fragment")
    if url.scheme == "http" and not _is_loopback(url.host or ""):
        raise ConfigurationError(
            f"base_url {text!r} would send the API key unencrypted; use https:// "
            "(http:// is for this machine only)"
        )
    return str(url).rstrip("/")


def check_proxy(given: object, base_url: str) -> URL | None:
    """Return the proxy's URL, or None for no proxy.

    Raises:
        ConfigurationError: It is not the URL of an HTTP proxy, or the proxy would see the key.
    """
    if given is None:
        return None
    url = _http_url(given) if isinstance(given, str | URL) else None
    if url is None:
        raise ConfigurationError(
            "proxy must look like 'http://user:password@proxy.example.com:3128', "
            f"not {_without_password(given)!r}"
        )
    if not _can_authenticate(url):
        raise ConfigurationError(
            "the user name and password in proxy must be Latin-1, without ':' in the name; "
            "a proxy is sent nothing else"
        )
    if base_url.startswith("http:") and not _is_loopback(url.host or ""):
        raise ConfigurationError(
            f"proxy {_without_password(given)!r} would see the API key, since base_url is "
            "http://; use https://"
        )
    return url


def _http_url(given: str | URL) -> URL | None:
    """Return the URL; None if it does not name an HTTP server."""
    try:
        url = URL(given.strip() if isinstance(given, str) else given)
        has_host = bool(url.host) and " " not in str(url.host)
        names_server = has_host and url.port is not None and url.scheme in {"http", "https"}
        str(url.raw_host).encode("idna")  # as the resolver will
    except ValueError:
        return None
    return url if names_server else None


def _can_authenticate(proxy: URL) -> bool:
    """Return whether its name and password fit into a ``Proxy-Authorization`` of aiohttp."""
    name, password = proxy.user or "", proxy.password or ""
    return ":" not in name and not any(ord(char) > 0xFF for char in name + password)


def _without_password(given: object) -> object:
    text = str(given) if isinstance(given, URL) else given
    return text if not isinstance(text, str) or "@" not in text else text.rpartition("@")[2]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES
