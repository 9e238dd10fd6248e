"""Reads what has changed since a moment, while records go on changing.

Page numbers cannot do that: a record that is edited moves to the end of the order by modification
date, all behind it shift, and one of them is skipped. So only first pages are requested, each from
the moment at which the last one ended::

    modifiedDate>=09:00, oldest first:   09:00 09:03 09:07 09:07
    modifiedDate>=09:07, oldest first:                     09:07 09:07 09:07 09:12
                                                           └─ known ─┘ └── new ──┘

A page holds all records, as of its answer, from the moment asked for to that of its last record.
Later writes get later moments, or the latest once more. So nothing before a page's last moment
can be missed, and what is edited comes again. Records of that moment itself may be missing, so
they are requested again; those that come as they were are not handed out twice. If they fill half
a page, the next one is larger. If they fill the largest, the list cannot be read on without
risk, and that is an error.

Moments are cut to microseconds, since a service may compare less exactly than it writes: an
earlier moment at worst makes a record come twice.

Assumed: the service's clock does not go back.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import Final

from attrs import astuple, define, evolve, field, frozen
from msgspec import Raw

from integration_sdk._checks import sendable
from integration_sdk._http.requests import Params, Request
from integration_sdk._list.cursor import Position
from integration_sdk._list.drift import Keys, mark
from integration_sdk._list.page import NO_PAGE, RawPage
from integration_sdk._list.walk import PageRequest, Walk
from integration_sdk._options_given import LARGEST_PAGE
from integration_sdk._records.codec import parse_utc, to_utc
from integration_sdk.errors import ConfigurationError

MODIFIED: Final = "modifiedDate"
"""Assumed: the field that says when a record was changed, as published."""
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
GROWTH: Final = 4
"""How many times as large the next page is if records of one moment fill it."""
MOST_MARKS: Final = 500
"""Maximum number of records of one moment that a cursor knows; others of it come again."""


# What to ask for


def read_moment(name: str, value: object) -> datetime:
    """Return the moment *value* in UTC: an aware datetime, or ISO 8601, where UTC is the default.

    "beginning" stands for a moment before all records.

    Raises:
        ConfigurationError: It is neither. A naive datetime could be local time or UTC.
    """
    if value == "beginning":
        return BEGINNING
    if isinstance(value, datetime) and value.tzinfo is not None:
        return to_utc(value)
    try:
        return parse_utc(value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{name} must be a datetime with a time zone, such as datetime.now(UTC), "
            f"ISO 8601 text, or 'beginning', not {value!r:.80}"
        ) from None


def write_moment(moment: datetime) -> str:
    """Return *moment*, which is in UTC, as it goes into a filter."""
    return moment.isoformat().replace("+00:00", "Z")


@frozen
class ChangesFilter:
    """The filter for records that were changed at or after some moment.

    Attributes:
        field: The field that says when a record was changed.
        parameter: The name of the query parameter.
        text: The filter up to the moment. A list's own request has it like that, without a
            moment, so that its cursors fit no other list, but any moment.
        since: The moment to begin with.
    """

    field: str
    parameter: str
    text: str
    since: datetime

    @classmethod
    def of(
        cls, changed_since: object, changed_by: object, parameter: str, query: str | None
    ) -> ChangesFilter:
        """Return the filter for the options of a list, of which *query* may be None.

        Raises:
            ConfigurationError: *changed_since* is no moment, or *changed_by* not a field's name.
        """
        name = sendable("changed_by", changed_by)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigurationError(f"changed_by must be the name of a field, not {name!r}")
        if query and "||" in query:  # && binds closer
            query = f"{{{query}}}"
        text = f"{query}&&{name}>=" if query else f"{name}>="
        return cls(name, parameter, text, read_moment("changed_since", changed_since))

    def params(self, request: Request, moment: datetime, size: int) -> Params:
        """Return the query for the first page of *size* records from *moment* on."""
        text = self.text + write_moment(moment)
        changes = {"page": "1", "pageSize": str(size), self.parameter: text}
        return request.with_params(**changes).params

    def moment_in(self, params: Params) -> datetime:
        """Return the moment that the query *params* asks from."""
        text = dict(params)[self.parameter]
        return read_moment("the moment in a cursor", text.removeprefix(self.text))


# Reading


@frozen
class Reached:
    """How far a list was read.

    Attributes:
        moment: All records before it have been handed out.
        seen: Those of the moment itself that have been: hashes of their content, by hashes of
            their keys.
    """

    moment: datetime
    seen: dict[int, int]


@define(kw_only=True)
class ChangeWalk(Walk):
    """A walk along the records that were changed at or after a moment, oldest first.

    Attributes:
        changes: Which records to ask for.
        size: Number of records in a page, if it need not be larger.
        keys: Reads the keys of records.
    """

    changes: ChangesFilter
    size: int
    keys: Keys

    _dates: Keys = field(init=False)
    _reached: Reached = field(init=False)
    """After the current page."""
    _before: Reached = field(init=False)
    """Before the current page."""
    _page: RawPage = field(init=False, default=NO_PAGE)
    """The current page; records that were handed out before come first."""
    _moments: list[datetime] = field(init=False, factory=list)
    """When its records were changed."""
    _done: int = field(init=False, default=0)
    """Records handed out before the current page."""
    _doubles: int = field(init=False, default=0)
    """Records of the current page that were handed out before."""
    _largest: int = field(init=False, default=LARGEST_PAGE)
    """Most records that the service returns in a page."""

    def __attrs_post_init__(self) -> None:
        marks = self.start.marks
        seen = dict(zip(marks[::2], marks[1::2], strict=False))
        self.total = self.start.total
        self._dates = Keys.of(self.changes.field, bytes)
        self._reached = Reached(self.changes.moment_in(self.start.params), seen)
        self._before = self._reached
        self.start_over(self._plan(0))

    # What to fetch

    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return None: where the next page begins is known only when *tail* has arrived."""
        return None

    def _plan(self, least: int) -> PageRequest:
        """Return the next page: at least *least* records, and twice those that come again."""
        size = self.size
        while size < max(least, 2 * len(self._reached.seen)):
            size *= GROWTH
        return self._page_request(min(size, self._largest))

    def _page_request(self, size: int) -> PageRequest:
        params = self.changes.params(self.request, self._reached.moment, size)
        return PageRequest(params=params, number=1, size=size)

    def skip_head(self) -> bool:
        """Return False: a first page always exists."""
        return False

    # What came of it

    def opened(self, page: RawPage, size: int, now: float = 0.0) -> tuple[RawPage, int]:
        """Make the head's answer the current page; see `Walk.opened`.

        Raises:
            PaginationError: The service did not filter or order by the field, or more records
                were changed at one moment than a page holds.
        """
        wanted = self.pages[0]
        self.check_number(wanted, page.number)
        moments = self._read_moments(page)
        again = self._were_seen(page, moments)
        following = self._following(wanted, page, moments)
        self.open_head(size)
        self._done, self._doubles = self.offered, sum(again)
        self.offered += page.count - self._doubles
        self.total = None if page.total is None else self._count(page.total)
        # Those seen before have the earliest moment of the page, so it stays in order.
        order = sorted(range(page.count), key=lambda index: not again[index])
        self._page = evolve(page, raws=[page.raws[index] for index in order])
        self.current, self._moments, self._before = wanted, moments, self._reached
        self._reached = self._after(page.count)
        self.start_over(*([self._plan(following)] if following is not None else []))
        return self._page, self._doubles

    def _read_moments(self, page: RawPage) -> list[datetime]:
        name, since = self.changes.field, self._reached.moment
        try:
            moments = list(map(parse_utc, self._dates.read(page.raws)))
        except (TypeError, ValueError) as error:
            what = f"a record has no date in {name} ({error})"
            raise self.error(f"{what}; name the field that has one with changed_by=", 1) from None
        if moments and min(moments) < since:
            what = f"{name} from {write_moment(since)} on was requested, but {min(moments)} came"
            raise self.error(f"{what}: the service does not filter by it", 1)
        if any(later < earlier for earlier, later in pairwise(moments)):
            raise self.error(f"the records are not in the order of {name}, as requested", 1)
        return moments

    def _were_seen(self, page: RawPage, moments: list[datetime]) -> list[bool]:
        """Return for each record of *page* whether it was handed out as it is."""
        since, seen = self._reached.moment, self._reached.seen.items()
        return [
            moment == since and bool(seen) and self._marks(raw) in seen
            for raw, moment in zip(page.raws, moments, strict=True)
        ]

    def _marks(self, raw: Raw) -> tuple[int, int]:
        """Return hashes of a record's key and content. Without a key, the content is the key."""
        content = mark(bytes(raw))
        key = self.keys.read([raw])[0]
        return content if key is None else mark(key), content

    def _following(self, wanted: PageRequest, page: RawPage, moments: list[datetime]) -> int | None:
        """Return the minimum size of the page after *page*; None at the end of the list."""
        size = wanted.size or 0
        if page.size and page.size < size:
            self._largest = size = page.size
        if not _has_more(page, size):
            return None
        if moments and moments[-1] > self._reached.moment:
            return 0
        if size >= self._largest:
            since = write_moment(self._reached.moment)
            raise self.error(
                f"a page of {size} records ended before all with {self.changes.field} {since}, "
                "and behind it some could be missed; narrow the list with query=, or read it "
                "once without changed_since=",
                1,
            )
        return size + 1

    def _after(self, taken: int) -> Reached:
        """Return how far the list was read by the first *taken* records of the current page."""
        before = self._before
        moment = self._moments[taken - 1] if taken else before.moment
        first = bisect_left(self._moments, moment, 0, taken)
        new = dict(map(self._marks, self._page.raws[first:taken]))
        return Reached(moment, {**before.seen, **new} if moment == before.moment else new)

    def _count(self, records: int) -> int:
        """Return how many were handed out after the first *records* of the current page."""
        return self.start.done + self._done + max(records - self._doubles, 0)

    # Where it is

    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""
        if self.current is None:
            return self.start
        reached = self._after(taken)
        return Position(
            params=self.changes.params(self.request, reached.moment, self.size),
            done=self._count(taken),
            total=self.total,
            marks=tuple(chain.from_iterable(reached.seen.items()))[-2 * MOST_MARKS :],
        )


def _has_more(page: RawPage, size: int) -> bool:
    """Whether the list may go on behind *page*: by its links or, without any, total and count."""
    if any(astuple(page.links)):
        return page.links.next is not None
    # A total alone is no evidence that a full page is the last one.
    return page.count >= size or (page.total or 0) > page.count
