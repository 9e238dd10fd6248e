"""Follows the links of a list, and knows places in it.

A page is known by the text of its query, and a link's query is sent back as it came, with the path
of the caller's request: so a link can lead neither the request nor the key in it elsewhere.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from hashlib import blake2s
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from attrs import Factory, define, frozen
from msgspec import Raw
from yarl import URL

from integration_sdk._http.requests import Request
from integration_sdk._list.page import RawPage
from integration_sdk.errors import ConfigurationError, PaginationError

MOST_EMPTY: Final = 1_000
"""Empty pages in a row that are followed."""
_NUMBER: Final = re.compile(r"(?:^|(?<=&))page=(\d{1,18})(?=&|$)")
_SIZE: Final = re.compile(r"(?:^|(?<=&))pageSize=(\d{1,4})(?=&|$)")
_SENT_AS_IT_IS: Final = "!$%&'()*+,/:;=?@[]|"
_PLACE: Final = frozenset({"page", "pageSize"})


# Places


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """A place in a list, between two items.

    Attributes:
        of: Fingerprint of the list, so that another one refuses the cursor.
        query: Of the page that holds the next item; of a list of changes, the moment.
        skip: Items of that page that were handed out.
        done: Items handed out so far, earlier runs included.
        known: Of changes: hashes of what was handed out from the moment on.
        is_short: Whether the page has fewer items than requested.
    """

    of: str
    query: str
    skip: int = 0
    done: int = 0
    known: bytes = b""
    is_short: bool = False

    def __str__(self) -> str:
        payload = msgspec.msgpack.encode(self)
        check = blake2s(payload, digest_size=4).digest()  # of damage, not of forgery
        return f"2.{urlsafe_b64encode(check + payload).decode().rstrip('=')}"


def read_cursor(text: str, of: str, path: str) -> Cursor:
    """Return the place that *text* names, in the list with the fingerprint *of*.

    Raises:
        ConfigurationError: It is damaged, or belongs to another list or version.
    """
    version, _, body = text.partition(".")
    if version.isdecimal() and version != "2":
        raise ConfigurationError(
            f"this cursor is of version {version}, which this SDK does not read; start afresh"
        )
    cursor = None
    try:
        packed = urlsafe_b64decode(body + "=" * (-len(body) % 4))
        cursor = msgspec.msgpack.decode(packed[4:], type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        pass
    if cursor is None or str(cursor) != text:
        raise ConfigurationError("this cursor is damaged: pass a list's cursor as it was, in full")
    if cursor.of != of:
        raise ConfigurationError(
            f"this cursor belongs to another list than {path} with this filter and order"
        )
    return cursor


def fingerprint(request: Request, *more: str | None) -> str:
    """Return what tells the list of *request* from others."""
    which = sorted(pair for pair in request.params if pair[0] not in _PLACE)
    return blake2s(msgspec.json.encode([request.path, which, more]), digest_size=6).hexdigest()


def number_in(query: str) -> int | None:
    """Return the page number in *query*; None if it has none, or several."""
    found = _NUMBER.findall(query)
    return int(found[0]) if len(found) == 1 else None


def size_in(query: str) -> int:
    """Return the page size in *query*; 0 if it has none."""
    found = _SIZE.search(query)
    return int(found[1]) if found else 0


def same(one: str, other: str) -> bool:
    """Whether two queries ask for the same page."""
    return one == other or sorted(parse_qsl(one, True)) == sorted(parse_qsl(other, True))


def in_smaller_pages(place: Cursor, size: int) -> Cursor | None:
    """Return *place* in pages of *size*; None unless all pages up to it were full."""
    number, own = number_in(place.query), size_in(place.query)
    if number is None or not 0 < size < own or place.is_short:
        return None
    if (number - 1) * own + place.skip != place.done:
        return None
    query = _numbered(_SIZE.sub(f"pageSize={size}", place.query), place.done // size + 1)
    return msgspec.structs.replace(place, query=query, skip=place.done % size)


def _numbered(query: str, number: int) -> str:
    return _NUMBER.sub(f"page={number}", query)


# Walks


@frozen
class Opened:
    """A page to hand out.

    Attributes:
        page: The answer.
        raws: Its items that are to be handed out.
        following: The query of the next page; None at the end.
        problem: Why the list cannot be read on behind these items.
    """

    page: RawPage
    raws: Sequence[Raw]
    following: str | None
    problem: PaginationError | None = None


def list_error(request: Request, what: str, page: int | None) -> PaginationError:
    text = f"{request}: {what}; the list cannot be read on from here"
    return PaginationError(text, page=page, **request.facts)


@define
class Links:
    """Follows the ``next`` links.

    As long as a link is the page's own query with the next number, later pages can be requested
    before their links are known. Each link is compared when it arrives, and wins.
    """

    request: Request
    base_url: str
    start: Cursor
    _seen: set[str] = Factory(set)
    _empty: int = 0

    def first(self) -> str:
        self._seen.add(self.start.query)
        return self.start.query

    def opened(self, query: str, page: RawPage) -> Opened:
        """Note that *page* answered *query*."""
        wanted = number_in(query)
        if None not in (wanted, page.number) and wanted != page.number:
            what = f"page {wanted} was requested, but page {page.number} was returned"
            raise list_error(self.request, what, wanted)
        raws = page.raws[self.start.skip :] if query == self.start.query else page.raws
        try:
            return Opened(page, raws, self._following(query, page))
        except PaginationError as problem:  # the page came as requested, so its items are good
            return Opened(page, raws, None, problem)

    def _following(self, query: str, page: RawPage) -> str | None:
        if page.links.next is None:
            return None
        here = number_in(query) or page.number
        following = self._read(page.links.next, query, here)
        self._empty = 0 if len(page.raws) else self._empty + 1
        if self._empty > MOST_EMPTY:
            what = f"{self._empty} pages in a row are empty, and each links to another"
            raise list_error(self.request, what, here)
        number = number_in(following)
        if following in self._seen or (number and here and number <= here):
            what = f"the next link of page {here} leads back to a page that was read already"
            raise list_error(self.request, what, here)
        self._seen.add(following)
        return following

    def _read(self, href: str, query: str, page: int | None) -> str:
        """Return the query of a link that stays at this list."""
        if not self._stays(href):
            what = f"its next link {href!r:.500} leads away from this list; it was not followed"
            raise list_error(self.request, f"page {page}: {what}", page)
        following = quote(URL(href, encoded=True).raw_query_string, safe=_SENT_AS_IT_IS)
        names = {name for name, _ in parse_qsl(following, True)}
        own = {name for name, _ in self.request.params}
        if size_in(query) and "page" in names and names <= own - {"pageSize"}:
            return f"{following}&pageSize={size_in(query)}"  # without it, another page would come
        return following

    def _stays(self, href: str) -> bool:
        own = URL(f"{self.base_url}{self.request.path}", encoded=True)
        try:
            link = own.join(URL(href, encoded=True))
            is_host = link.scheme in {"http", "https"} and link.host == own.host
            is_port = link.port == own.port or link.explicit_port is own.explicit_port is None
        except ValueError:
            return False
        # A proxy that ends TLS may make it http://, and an id may come in another case.
        paths = {unquote(path).casefold() for path in (own.raw_path, self.request.path)}
        return is_host and is_port and unquote(link.raw_path).rstrip("/").casefold() in paths

    def ahead(self, query: str, opened: Opened, limit: float) -> Iterator[str]:
        """Yield the pages behind the following one, if its link is the next number of *query*."""
        number, page, following = number_in(query), opened.page, opened.following
        if number is None or following is None or not page.size or page.total is None:
            return
        if not same(_numbered(query, number + 1), following):
            return
        last = min(page.total, number * page.size + limit)
        while (number := number + 1) * page.size < last:
            yield _numbered(following, number + 1)

    def smaller(self, query: str, done: int) -> str | None:
        """Return the page of half the size that holds the item behind the first *done*."""
        start = self.start
        place = start if query == start.query else Cursor(start.of, query, 0, done)
        fewer = in_smaller_pages(place, size_in(query) // 2)
        if fewer is not None:
            self.start = fewer
        return fewer.query if fewer else None

    def place(self, query: str, taken: int, opened: Opened, done: int) -> Cursor:
        """Return the place behind the first *taken* items of a page, of *done* in all."""
        if taken == len(opened.raws) and opened.following is not None:
            return Cursor(self.start.of, opened.following, 0, done)
        count = len(opened.page.raws)
        skip, is_short = count - len(opened.raws) + taken, count < size_in(query)
        return Cursor(self.start.of, query, skip, done, is_short=is_short)
