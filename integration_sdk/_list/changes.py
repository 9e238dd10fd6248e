"""Reads what was changed since a moment, while records go on changing.

Page numbers cannot do that: a record that is edited moves to the end of the order by modification
date, all behind it shift, and one of them is skipped. So only first pages are requested, each from
the moment at which the last one ended::

    modifiedDate>=09:00, oldest first:   09:00 09:03 09:07 09:07
    modifiedDate>=09:07, oldest first:                     09:07 09:07 09:07 09:12
                                                           └─ known ─┘ └── new ──┘

A page holds all records, as of its answer, from the moment asked for to that of its last record, so
nothing before that can be missed. Records of the last moment may be missing, so they are requested
again; what is known, by a hash of its content, is not handed out twice.

Where a page is full of one moment, the records of that moment are read by themselves, from the last
page to the first: a record that is edited meanwhile leaves the moment, and those behind it move to
pages that are still to be read. Then the list goes on behind the moment.

A record may be stamped in the future. It is handed out, but the place never passes the service's
own time, since others will be stamped before it.

Assumed: the service's clock does not go back; records of one moment keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2s
from itertools import pairwise
from typing import Final

from attrs import Factory, define
from msgspec import Raw

from integration_sdk._http.requests import Request
from integration_sdk._list.links import Cursor, Opened, list_error, size_in
from integration_sdk._list.page import Key, RawPage, read_keys, write_moment
from integration_sdk._options_given import LARGEST_PAGE
from integration_sdk._records.codec import LATEST, parse_utc, to_utc
from integration_sdk.errors import ConfigurationError, PaginationError

MODIFIED: Final = "modifiedDate"
"""Assumed: the field that says when a record was changed, as published."""
MOST_PASSES: Final = 5
"""Attempts to read the records of one moment while they change."""
_HASH: Final = 5
"""Bytes of the hash of an id, and of that of a content: two make a mark."""
_NOT_MET: Final = "~"
"""In place of the moment of a record that only the cursor knows; it sorts behind all moments."""
_Record = tuple[bytes, str]
"""A hash of a record's content, and its moment."""


def read_moment(value: object) -> str:
    """Return *value* as a moment: an aware datetime, ISO 8601 (in UTC by default) or "beginning".

    Raises:
        ConfigurationError: It is none of these. A naive datetime could be local time or UTC.
    """
    try:
        if value == "beginning":
            return write_moment(datetime.min.replace(tzinfo=UTC))  # of records without a date
        if isinstance(value, datetime) and value.tzinfo is not None:
            return write_moment(to_utc(value))
        return write_moment(parse_utc(value))
    except (TypeError, ValueError):
        raise ConfigurationError(
            "changed_since must be a datetime with a time zone, such as datetime.now(UTC), "
            f"ISO 8601 text, or 'beginning', not {value!r:.80}"
        ) from None


def filter_text(query: str | None, changed_by: str) -> str:
    """Return the filter up to its comparison with a moment.

    Raises:
        ConfigurationError: *changed_by* is not a field's name.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", changed_by):
        raise ConfigurationError(f"changed_by must be the name of a field, not {changed_by!r}")
    if query and "||" in query:  # && binds closer
        query = f"{{{query}}}"
    return f"{query}&&{changed_by}" if query else changed_by


@define
class _Tie:
    """A pass over the records of one moment.

    Attributes:
        end: The moment behind it.
        page: The page that is read next.
        total: How many records there were when the pass began; None before its first answer.
        grew: Whether there were more later.
        ids: Those that were seen.
    """

    end: str
    page: int = 1
    total: int | None = None
    grew: bool = False
    ids: set[str | bytes] = Factory(set)


@define
class Changes:
    """A walk along the records that were changed at or after a moment, oldest first.

    Attributes:
        request: For the list in the order of the field, without the filter by moment.
        start: Where to begin; its query is a moment.
        changed_by: The field.
        parameter: Name of the query parameter for filters.
        text: The filter up to its comparison with a moment.
        size: Items per page, if nothing asks for more.
    """

    request: Request
    start: Cursor
    changed_by: str
    parameter: str
    text: str
    size: int
    _since: str = ""
    """Where to go on behind the current page: all before it has come."""
    _before: str = ""
    """The place before the current page: nothing before it is missing."""
    _asked_from: str = ""
    """The moment that the current page was read from."""
    _now: str = ""
    """The service's own time at its answer."""
    _known: dict[bytes, _Record] = Factory(dict)
    """What was handed out, of `_before` and later, by hash of the id."""
    _fresh: list[tuple[bytes, _Record]] = Factory(list)
    """What is to be handed out of the current page, likewise."""
    _tie: _Tie | None = None
    _passes: int = 0
    _largest: int = LARGEST_PAGE

    def first(self) -> str:
        known = self.start.known
        for at in range(0, len(known), 2 * _HASH):
            self._known[known[at : at + _HASH]] = known[at + _HASH : at + 2 * _HASH], _NOT_MET
        self._since = self._before = self._asked_from = self.start.query
        return self._from_moment()

    # What to request

    def _query(self, comparison: str, size: int, page: int = 1) -> str:
        changes = {"page": str(page), "pageSize": str(size), self.parameter: self.text + comparison}
        return self.request.with_params(**changes).target.partition("?")[2]

    def _from_moment(self) -> str:
        """Request all from the moment on, in a page with room for what is known of it."""
        again = sum(at in {_NOT_MET, self._since} for _, at in self._known.values())
        return self._query(f">={self._since}", min(self.size + again, self._largest))

    def _next_of(self, tie: _Tie) -> str:
        # Not "=", since a service may write more digits of a moment than it compares.
        comparison = f">={self._since}&&{self.changed_by}<{tie.end}"
        return self._query(comparison, self.size, tie.page)

    def smaller(self, query: str, done: int) -> str | None:
        """Go on from the moment in pages of half the size."""
        size = size_in(query) // 2
        if size < 1:
            return None
        self.size = self._largest = size
        self._tie = None
        return self._from_moment()

    def ahead(self, query: str, opened: Opened, limit: float) -> Iterator[str]:
        """Yield nothing: where the page after the next begins is known only then."""
        return iter(())

    # What came of it

    def opened(self, query: str, page: RawPage) -> Opened:
        """Note that *page* answered *query*."""
        self._advance()
        self._asked_from, self._now = self._since, write_moment(page.answered_at)
        keys = read_keys(page.raws, self.changed_by)
        moments = self._moments(keys)
        contents = [_hash(bytes(raw)) for raw in page.raws]
        marks = [
            content if key.id is None else _hash(key.id.encode())
            for key, content in zip(keys, contents, strict=True)
        ]
        last = {mark: n for n, mark in enumerate(marks)}
        raws, fresh = list[Raw](), list[tuple[bytes, _Record]]()
        for n, (mark, content) in enumerate(zip(marks, contents, strict=True)):
            if mark in self._known and self._known[mark][0] == content:
                self._known[mark] = content, moments[n]
            elif last[mark] == n or mark == content:  # of two states of a record, the last counts
                fresh.append((mark, (content, moments[n])))
                raws.append(page.raws[n])
        if self._tie is None:
            following = self._after(page, moments)
        else:
            self._tie.ids |= {
                key.id or bytes(raw) for key, raw in zip(keys, page.raws, strict=True)
            }
            following = self._after_tie(self._tie, page)
        if following is None:  # what was not met was changed or deleted
            self._known = {m: one for m, one in self._known.items() if one[1] != _NOT_MET}
        self._fresh = fresh
        return Opened(page, raws, following)

    def _advance(self) -> None:
        """Note that the current page was handed out as a whole."""
        self._known.update(self._fresh)
        self._fresh = []
        before, self._before = self._before, self._bounded(self._since)
        if self._before > before:
            self._known = {m: one for m, one in self._known.items() if one[1] >= self._before}

    def _bounded(self, moment: str) -> str:
        """Return the place when all from `_asked_from` to *moment* has come, as of `_now`."""
        if self._asked_from > self._before:  # what was written between them meanwhile has not come
            return self._before
        return max(self._before, min(moment, self._now))

    def _moments(self, keys: list[Key]) -> list[str]:
        name, since = self.changed_by, self._since
        moments = [key.modified for key in keys if key.modified is not None]
        if len(moments) < len(keys):
            what = f"a record has no date in {name}; name the field that has one with changed_by="
            raise self._error(what)
        if any(later < earlier for earlier, later in pairwise(moments)):
            raise self._error(f"the records are not in the order of {name}, as requested")
        if moments and (moments[0] < since or (self._tie and moments[-1] > since)):
            what = f"records with {name}{'=' if self._tie else '>='}{since} were requested"
            came = moments[0] if moments[0] < since else moments[-1]
            raise self._error(f"{what}, but {came} came: the service does not filter by it")
        return moments

    def _after(self, page: RawPage, moments: list[str]) -> str | None:
        if moments and moments[-1] > self._since:
            self._since, self._passes = moments[-1], 0
        elif page.links.next:
            return self._begin_tie()
        return self._from_moment() if page.links.next else None

    def _begin_tie(self) -> str:
        """Read the records of the moment by themselves, since they fill a page."""
        self._passes += 1
        moment = parse_utc(self._since)
        if self._passes > MOST_PASSES or moment == LATEST:
            raise self._error(
                f"more records than a page have {self.changed_by} {self._since}, and they change "
                "too often, or cannot be filtered by it"
            )
        self._tie = _Tie(write_moment(moment + timedelta(microseconds=1)))
        return self._next_of(self._tie)

    def _after_tie(self, tie: _Tie, page: RawPage) -> str:
        total = page.total or 0
        if tie.total is None:  # page 1 comes again as the last one, if there are others
            pages = -(-total // (page.size or self.size))
            tie.total, tie.page = total, pages if total > len(page.raws) else 0
        else:
            tie.page -= 1
        tie.grew |= total > tie.total
        if tie.page:
            return self._next_of(tie)
        self._tie = None
        if total and len(tie.ids) >= total and not tie.grew:
            return self._query(f">={tie.end}", self.size)
        return self._from_moment()

    def place(self, query: str, taken: int, opened: Opened, done: int) -> Cursor:
        """Return the place behind the first *taken* items of a page, of *done* in all."""
        moment = self._before
        if taken >= len(self._fresh):
            moment = self._bounded(self._since)
        elif taken:
            moment = self._bounded(self._fresh[taken - 1][1][1])
        known = self._known | dict(self._fresh[:taken])
        hashes = b"".join(mark + content for mark, (content, at) in known.items() if at >= moment)
        return Cursor(self.start.of, moment, 0, done, hashes)

    def _error(self, what: str) -> PaginationError:
        return list_error(self.request, what, 1)


def _hash(text: bytes) -> bytes:
    return blake2s(text, digest_size=_HASH).digest()
