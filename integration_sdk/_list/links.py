"""Reads the query of a ``next`` link.

A link is text from the service's answer. Only its query is used, with the path of the caller's
request, so a link cannot lead the request, and the API key in it, to another host or path. A link
that tries raises `UnsafeLink`.

A query with more parameters than page, page size and the caller's own may contain anything (a
token of bytes, a flag without a value), so it is sent back unchanged.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from attrs import define, frozen
from yarl import URL

from integration_sdk._http.requests import Params, Request
from integration_sdk._list.cursor import PLACE, number_of, read_query
from integration_sdk.errors import UnsafeLink

LONGEST: Final = 1 << 15
"""Characters of a link: more than servers take. Some URLs are remembered, here and in yarl."""
_NOWHERE: Final = "http://base.invalid"
"""Used if the base URL is not known; a link that names a host is then refused."""
_SENT_AS_IT_IS: Final = "!$%&'()*+,/:;=?@[]|"


@frozen
class Link:
    """The query of a link.

    Attributes:
        params: Its parameters.
        query: The query as text to send; None if `params` is enough.
        number: The page number; None if the link does not say.
        sizeless: Whether it differs from the first request in nothing but the missing page size.
    """

    params: Params
    query: str | None
    number: int | None
    sizeless: bool


@define
class LinkReader:
    """Reads the links of one list.

    Attributes:
        request: The request for the first page.
        base_url: The URL of the service, which absolute links must have.
    """

    request: Request
    base_url: str

    def read(self, href: str, *, page: int | None) -> Link:
        """Return the query of *href*, a link found on *page*.

        Raises:
            UnsafeLink: It leads to another host or path, or is too long.
        """
        fault = "is too long" if len(href) > LONGEST else "leads away from this list"
        try:
            query = urlsplit(href).query
            # Most links are a bare path, or a query: those name no host.
            is_safe = len(href) <= LONGEST and self._stays(href)
        except ValueError:
            is_safe = False
        if not is_safe:
            raise UnsafeLink(
                f"{self.request}, page {page}: its next link {href!r:.500} {fault}; "
                "it was not followed and nothing was sent there",
                page=page,
                **self.request.facts,
            )
        params = read_query(query)
        names, own = {name for name, _ in params}, {name for name, _ in self.request.params}
        # Parameters that the request did not have may stand for any page.
        default = 1 if names <= own else None
        number = number_in(params) if "page" in names else default
        sizeless = "page" in names and names <= own - {"pageSize"}
        return Link(params, self._text(query, params), number, sizeless)

    def _stays(self, href: str) -> bool:
        base = URL(self.base_url.rstrip("/") or _NOWHERE, encoded=True)
        link = URL(f"{base}{self.request.path}", encoded=True).join(URL(href, encoded=True))
        # A service behind a proxy that ends TLS may write http:// into its links.
        same_port = link.port == base.port or link.explicit_port is base.explicit_port is None
        if link.scheme not in {"http", "https"} or link.host != base.host or not same_port:
            return False
        # The service may write an id in another case than the caller.
        path = unquote(link.raw_path).rstrip("/").casefold()
        own = unquote(self.request.path).casefold()
        return path in {unquote(base.raw_path).rstrip("/").casefold() + own, own}

    def _text(self, query: str, params: Params) -> str | None:
        if {pair for pair in params if pair[0] not in PLACE} <= {*self.request.params}:
            return None
        text = quote(query, safe=_SENT_AS_IT_IS)
        anew = urlencode(params, quote_via=quote, safe="")
        return None if sorted(text.split("&")) == sorted(anew.split("&")) else text


def number_in(params: Params, name: str = "page") -> int | None:
    """Return the number that *params* give for *name*; None if it is not one number."""
    values = [value for known, value in params if known == name]
    return number_of(values[0]) if len(values) == 1 else None
