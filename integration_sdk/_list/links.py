"""Reads the query of a ``next`` link.

A link is text from the service's answer. Only its query is used, with the path of the caller's
request, so a link cannot lead the request, and the API key in it, to another host or path. A link
that tries raises `UnsafeLink`.

A query with more parameters than page, page size and the caller's own may contain anything (a
token of bytes, a flag without a value), so it is sent back unchanged.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from attrs import define, field, frozen

from integration_sdk._http.requests import Params, Request
from integration_sdk._list.cursor import PLACE, number_of, read_query
from integration_sdk.errors import UnsafeLink

_PORTS: Final = {"http": 80, "https": 443}
_NOWHERE: Final = "http://base.invalid"
"""Used if the base URL is not known; a link that names a host is then refused."""
_SENT_AS_IT_IS: Final = "!$%&'()*+,/:;=?@[]|"
_PAGE: Final = re.compile(r"(?<=[?&]page=)[0-9]{1,9}(?=&|$)")


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
    _around: tuple[str, str] | None = field(init=False, default=None)
    """The text of the last link before and after its page number."""
    _others: Params = field(init=False, default=())
    """The other parameters of that link."""
    _sizeless: bool = field(init=False, default=False)

    def read(self, href: str, *, page: int | None) -> Link:
        """Return the query of *href*, a link found on *page*.

        Links of one list usually differ only in the page number, so only the first is parsed.

        Raises:
            UnsafeLink: It leads to another host or path.
        """
        found = _PAGE.search(href)
        around = (href[: found.start()], href[found.end() :]) if found else None
        if found and around == self._around:
            return Link((*self._others, ("page", found[0])), None, int(found[0]), self._sizeless)
        link = self._link(href, self._parse(href, page))
        if link.query is None and link.number is not None:
            self._around, self._sizeless = around, link.sizeless
            self._others = tuple(pair for pair in link.params if pair[0] != "page")
        return link

    def _link(self, href: str, params: Params) -> Link:
        names, own = {name for name, _ in params}, {name for name, _ in self.request.params}
        # Parameters that the request did not have may stand for any page.
        default = 1 if names <= own else None
        number = number_in(params) if "page" in names else default
        sizeless = "page" in names and names <= own - {"pageSize"}
        return Link(params, self._text(href, params), number, sizeless)

    def _text(self, href: str, params: Params) -> str | None:
        if {pair for pair in params if pair[0] not in PLACE} <= {*self.request.params}:
            return None
        text = quote(urlsplit(href).query, safe=_SENT_AS_IT_IS)
        anew = urlencode(params, quote_via=quote, safe="")
        return None if sorted(text.split("&")) == sorted(anew.split("&")) else text

    def _parse(self, href: str, page: int | None) -> Params:
        base = urlsplit(self.base_url.rstrip("/") or _NOWHERE)
        try:
            link = urlsplit(urljoin(f"{base.geturl()}{self.request.path}", href))
            safe = _same_host(link, base) and self._same_path(link, base)
        except ValueError:
            safe = False
        if not safe:
            raise UnsafeLink(
                f"{self.request}, page {page}: its next link {href!r:.500} leads away from "
                "this list; it was not followed and nothing was sent there",
                page=page,
                **self.request.facts,
            )
        return read_query(link.query)

    def _same_path(self, link: SplitResult, base: SplitResult) -> bool:
        # The service may write an id in another case than the caller.
        path = unquote(link.path).rstrip("/").casefold()
        own = unquote(self.request.path).casefold()
        return path in {unquote(base.path).casefold() + own, own}


def _same_host(link: SplitResult, base: SplitResult) -> bool:
    if link.scheme not in _PORTS or link.hostname != base.hostname:
        return False
    # A service behind a proxy that ends TLS may write http:// into its links.
    return _port(link) == _port(base) or (link.port is None and base.port is None)


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)


def number_in(params: Params, name: str = "page") -> int | None:
    """Return the number that *params* give for *name*; None if it is not one number."""
    values = [value for known, value in params if known == name]
    return number_of(values[0]) if len(values) == 1 else None
