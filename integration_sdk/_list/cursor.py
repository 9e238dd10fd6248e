"""Cursors: a short text for a place in a list, between any two items.

::

    1.<base64url of check and JSON>      1 = version
    JSON: [of, page, size, query, skip, done, total, marks]

``of`` is a fingerprint of path, filter and order, so that any other list refuses the cursor. A
page with a number is stored as number and size, any other as the query of the link to it. The
check detects damage, not forgery: a cursor allows nothing that a query parameter would not.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from attrs import evolve, frozen

from integration_sdk._http.requests import Params, Request
from integration_sdk.errors import ConfigurationError

VERSION: Final = "1"
_CHECK_BYTES: Final = 4
PLACE: Final = frozenset({"page", "pageSize"})
"""Parameters for the place in a list; all others select the list. Source: "Pagination"."""
_MOST_DIGITS: Final = 18


@frozen(kw_only=True)
class Position:
    """A place in a list, between two items.

    Attributes:
        params: Query of the page that holds the next item.
        query: That query as text, if it cannot be restored from `params`.
        skip: Number of items of that page that have been handed out.
        done: Number of items handed out so far, earlier runs included.
        total: ``totalResults`` as last answered.
        marks: Hashes of the keys of the last items handed out, if drift is repaired.
    """

    params: Params
    query: str | None = None
    skip: int = 0
    done: int = 0
    total: int | None = None
    marks: tuple[int, ...] = ()


class _Token(msgspec.Struct, array_like=True, frozen=True):
    of: str
    page: str | None
    size: str | None
    query: list[tuple[str, str]] | str | None
    skip: int
    done: int
    total: int | None
    marks: tuple[int, ...] = ()


def write_cursor(request: Request, position: Position) -> str:
    """Return *position* in the list of *request* as a cursor."""
    page, size, plain = _place(request, position)
    token = _Token(
        of=_fingerprint(request),
        page=page if plain else None,
        size=size if plain else None,
        query=None if plain else position.query or list(position.params),
        skip=position.skip,
        done=position.done,
        total=position.total,
        marks=position.marks,
    )
    return _seal(msgspec.json.encode(token))


def read_cursor(request: Request, cursor: str, page_size: int | None = None) -> Position:
    """Return the place of *cursor* in the list of *request*.

    Args:
        request: The request for the first page.
        cursor: What `write_cursor` returned for the same list.
        page_size: Go on in pages of this size, if it is smaller than the cursor's own and the
            items before the place can be counted: the cursor holds no link, and all pages were
            full. (The service may not return larger pages, and say so or not.)

    Raises:
        ConfigurationError: It is not a cursor, is damaged, has another version, or belongs to
            another list.
    """
    token = _parse(cursor)
    if token.of != _fingerprint(request):
        raise ConfigurationError(
            f"this cursor belongs to another list than {request.path} with this filter and order; "
            "pass it to the list() call that it came from"
        )
    position = Position(
        params=_params(request, token),
        query=token.query if isinstance(token.query, str) else None,
        skip=token.skip,
        done=token.done,
        total=token.total,
        marks=token.marks,
    )
    page, size = number_of(token.page or "1"), number_of(token.size or "")
    if page_size is None or token.query is not None or not page or not size or size <= page_size:
        return position
    before = (page - 1) * size + token.skip
    if before != token.done:
        return position
    place = {"page": str(before // page_size + 1), "pageSize": str(page_size)}
    return evolve(position, params=request.with_params(**place).params, skip=before % page_size)


def is_numbered(request: Request, position: Position) -> bool:
    """Whether *position* is a page number, and not an opaque link."""
    page, size, plain = _place(request, position)
    return plain and all(number_of(text or "1") for text in (page, size))


def number_of(text: str) -> int | None:
    """Return *text* as a page number or size; None if it is not a number of at most 18 digits."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _place(request: Request, position: Position) -> tuple[str | None, str | None, bool]:
    """Return ``page`` and ``pageSize`` of *position*, and whether its query adds only these."""
    place = {name: value for name, value in position.params if name in PLACE}
    page, size = place.get("page"), place.get("pageSize")
    plain = same_query(request.with_params(page=page, pageSize=size).params, position.params)
    return page, size, plain


def _params(request: Request, token: _Token) -> Params:
    if token.query is None:
        return request.with_params(page=token.page, pageSize=token.size).params
    return read_query(token.query) if isinstance(token.query, str) else tuple(token.query)


def _parse(cursor: object) -> _Token:
    version, dot, text = cursor.partition(".") if isinstance(cursor, str) else ("", "", "")
    if dot and version.isascii() and version.isdecimal() and version != VERSION:
        raise ConfigurationError(
            f"this cursor is of version {version}, which this SDK does not read; "
            "start the list afresh or use the SDK that wrote it"
        )
    try:
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        payload = packed[_CHECK_BYTES:]
        token = msgspec.json.decode(payload, type=_Token)
    except (ValueError, msgspec.MsgspecError):
        payload, token = b"", None
    if token is None or cursor != _seal(payload):
        raise ConfigurationError("this cursor is damaged: pass a list's cursor as it was, in full")
    return token


def same_query(one: Params, other: Params) -> bool:
    """Whether two queries have the same parameters, in any order."""
    return one == other or sorted(one) == sorted(other)


def read_query(text: str) -> Params:
    """Return the parameters of a query."""
    return tuple(parse_qsl(text, keep_blank_values=True))


def _fingerprint(request: Request) -> str:
    which = sorted(pair for pair in request.params if pair[0] not in PLACE)
    text = msgspec.json.encode([request.path, which])
    return blake2s(text, digest_size=6).hexdigest()


def _seal(payload: bytes) -> str:
    check = blake2s(payload, digest_size=_CHECK_BYTES).digest()
    return f"{VERSION}.{urlsafe_b64encode(check + payload).decode().rstrip('=')}"
