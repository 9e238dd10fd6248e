"""Checks the base URL and the proxy, so that the API key is sent encrypted or stays local."""

from __future__ import annotations

import ipaddress
from typing import Final

from yarl import URL

from integration_sdk.errors import ConfigurationError

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


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
