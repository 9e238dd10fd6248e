"""Which of the listed pushes is ours? What a listing proves about a row in doubt.

"New" is a set difference: listed now, not in the mark taken before the send, not owned by another
row, and not of another kind (an attachment is no create). About the new pushes of the lane::

    E2          exactly one agrees with what we sent, on the natural key or on every leaf,
                and it cannot be a rival's
    E1          there is exactly one; the journal is the lane's only writer, the search
                has lasted long enough, the lane has no rival, and the service's times
                of the mark and of the push are known
    ABSENT      the search has lasted long enough and there is none
    UNRESOLVED  the search has lasted long enough and none of the above holds

All but UNRESOLVED require a listing that reaches back past the mark and does not contradict itself.
A list may leave rows out, show them late or in disorder, and what one answer lacks is no evidence
alone:

* The mark may lack an old push, which then looks new. So a push proves nothing unless it stands
  above every push of the mark, and its own time, if it has one, is later than all of theirs and
  than the answer that the mark was made from. All these times are the service's own.
* A later listing may leave out a rival push, or ours. So E1 and ABSENT, which rest on what is
  not there, require the listing before to have said the same.

A new push that is still Pending echoes nothing yet, so a search that could end UNRESOLVED because
of one goes on; `PENDING_PATIENCE` bounds that.

What remains possible: the mark lacks the very newest push, alone, and that was less than a second
old (or the service has put its clock back since). Two rows with equal payloads
cannot be told apart, so there is no guessing between them. Without a natural key, different values
prove nothing: platforms rewrite records. No rule can detect another program's push of the very
same record: declaring a natural key asserts that there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final

from attrs import define, field, frozen

from integration_sdk._push.agreement import Match, decode, match_key, match_record
from integration_sdk._push.table import CREATES, Event
from integration_sdk._store.row import Evidence, Lane, Mark, Row, State, Verdict
from integration_sdk.dialect import Dialect
from integration_sdk.models import PushOperation, PushStatus

MARK: Final = 20
"""Most recent keys of a company that a mark has."""
_MOST_CANDIDATES: Final = 100
"""Candidates kept, the newest; without a mark every listed push may be one."""
PENDING_PATIENCE: Final = 20.0
"""How many times longer than usual a search lasts while what may be ours is still Pending."""
_CHANGES: Final = {"attachment": "AttachmentUploaded", "delete": "Deleted"}


@frozen
class Listing:
    """Pushes of one company, newest first as the service lists them.

    whole: Whether the list was read to its end. A listing that stopped early still counts if it
        shows every key of the mark.
    at: When its first page was answered, in Unix seconds by the service's own clock, if known.
    """

    operations: Sequence[PushOperation]
    whole: bool
    at: int | None = None

    @property
    def keys(self) -> list[str]:
        return [operation.push_operation_key for operation in self.operations]

    @property
    def is_consistent(self) -> bool:
        """Whether each key is listed once, and the times run downwards."""
        times = [one.requested_on_utc for one in self.operations if one.requested_on_utc]
        ordered = all(upper >= lower for upper, lower in pairwise(times))
        return ordered and len(set(self.keys)) == len(self.operations)

    def mark(self) -> Mark | None:
        """Return its newest keys as a mark; None if that would prove nothing."""
        newest = self.operations[:MARK]
        whole = self.whole and len(newest) == len(self.operations)
        times = [one.requested_on_utc.timestamp() for one in newest if one.requested_on_utc]
        if not (newest or whole):
            return None
        keys = tuple(one.push_operation_key for one in newest)
        return Mark(keys, whole, max(times, default=None), self.at)


def new_since(mark: Mark | None, listing: Listing) -> Sequence[PushOperation]:
    """Return the listed operations that were not there when the mark was taken.

    Without a mark that is all of them, which proves nothing, since no listing reaches back.
    """
    if mark is None:
        return listing.operations
    known = [at for at, key in enumerate(listing.keys) if key in mark.keys]
    below = None if mark.whole else max(known, default=-1) + 1
    newer = {one.push_operation_key: one for one in listing.operations[:below]}
    return [one for key, one in newer.items() if key not in mark.keys]


def not_newer(mark: Mark | None, listing: Listing) -> frozenset[str]:
    """Return the keys of new pushes that may be older than the mark, which lacks them."""
    if mark is None:
        return frozenset(listing.keys)
    first = next((at for at, key in enumerate(listing.keys) if key in mark.keys), inf)
    return frozenset(
        one.push_operation_key
        for at, one in enumerate(listing.operations)
        if at > first or (one.requested_on_utc and _is_old(one.requested_on_utc.timestamp(), mark))
    )


def _is_old(requested: float, mark: Mark) -> bool:
    """Whether a push was *requested* before the mark was taken, by the service's own clock."""
    if mark.latest is not None and requested <= mark.latest:
        return True
    return mark.taken_at is not None and requested < mark.taken_at


def reaches_back(mark: Mark | None, listing: Listing) -> bool:
    """Whether the listing provably goes back past the mark.

    A list that lacks one of its keys (cut off, or left out) or contradicts itself proves nothing.
    """
    if mark is None or not listing.is_consistent:
        return False
    if mark.taken_at is not None and listing.at is not None and listing.at < mark.taken_at:
        return False  # the service has put its clock back: new pushes may stand below the mark
    return set(mark.keys).issubset(listing.keys) if mark.keys else listing.whole


def in_lane(operation: PushOperation, lane: Lane, dialect: Dialect) -> bool:
    """Whether a push of the lane's company may belong to the lane; a missing name matches."""
    connection, data_type = operation.data_connection_id, operation.data_type
    return (connection is None or connection.casefold() == lane.connection_id.casefold()) and (
        data_type is None
        # Operations and paths spell some data types differently.
        or dialect.path_name(data_type).casefold() == dialect.path_name(lane.data_type).casefold()
    )


# One row, one push


def kind_of(row: Row) -> str:
    """Return what a row pushes: a record, an attachment, or a delete."""
    return "attachment" if row.content_type else "delete" if row.method == "DELETE" else "record"


def is_of_kind(row: Row, operation: PushOperation) -> bool:
    """Whether a push may be of the row's kind, by the changes that the service names."""
    types = {change.type for change in operation.changes}
    if not types:
        return True
    own = _CHANGES.get(kind_of(row))
    return own in types if own else not types.issubset(_CHANGES.values())


def match(row: Row, operation: PushOperation) -> Match:
    """Compare a push with what we sent."""
    if (changed := _CHANGES.get(kind_of(row))) is not None:
        refs = [one.record_ref for one in operation.changes if one.type == changed]
        ids = {ref.id for ref in refs if ref is not None}
        if not ids:
            return Match.SILENT
        if row.record_id not in ids:
            return Match.DIFFERS
        # A record is deleted once, but may get any number of files, of which nothing is echoed.
        return Match.AGREES if kind_of(row) == "delete" else Match.SILENT
    if row.natural_key is not None:
        return match_key(str(row.natural_value), row.natural_key, operation.data)
    return match_record(decode(row.payload) if row.payload else None, operation.data)


@frozen
class Finding:
    """What one listing suggests about a row in doubt.

    verdict: None if it shows which push is ours: *key*.
    waits: Whether a candidate is still Pending, and may say more later.
    """

    verdict: Verdict | None = None
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    waits: bool = False


def may_resend(row: Row, finding: Finding | None, *, transmissions: int) -> bool:
    """Whether a create in DOUBT may be sent again for want of any sign of it; no proof of absence.

    On record it must be absent, and by the last listing of this process (*finding*): an earlier one
    may be out of date. Candidates of any listing stay unexplained. The natural key is what the new
    push can be told by, should both turn up. *transmissions*: At most, so that what swallows
    requests does not get them for ever.
    """
    is_create = row.method == CREATES and row.record_id is None
    can_be_told = row.natural_key is not None and row.payload is not None
    is_refused = row.http_status is not None and row.http_status < 500
    is_absent = (
        row.state is State.DOUBT
        and (row.verdict, row.candidates) == (Verdict.ABSENT, ())
        and finding == Finding(Verdict.ABSENT)
    )
    again = is_create and can_be_told and not is_refused
    return again and is_absent and row.ghosts < transmissions


# All doubts of a company by one listing


@define
class Judging:
    """Judges the rows in doubt of a company by one listing.

    Args:
        asked: The rows that were in doubt when the listing was requested.
        listing: What it showed; None if it could not be read.
        exclusive: Whether the caller promises to be the lanes' only writer, which allows E1.
    """

    asked: Sequence[Row]
    listing: Listing | None
    dialect: Dialect
    exclusive: bool
    _of_row: dict[str, tuple[list[PushOperation], bool, frozenset[str]]] = field(init=False)
    _matches: dict[tuple[str, str], Match] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        shown = self.listing or Listing((), whole=False)
        of_mark = {
            mark: (new_since(mark, shown), reaches_back(mark, shown), not_newer(mark, shown))
            for mark in {row.mark for row in self.asked}
        }
        self._of_row = {}
        for row in self.asked:
            new, past, old = of_mark[row.mark]
            lane = [one for one in new if in_lane(one, row.lane, self.dialect)]
            self._of_row[row.id] = [one for one in lane if is_of_kind(row, one)], past, old

    @property
    def new(self) -> dict[str, PushOperation]:
        """The pushes that may be one of these rows', by key."""
        return {one.push_operation_key: one for ones, _, _ in self._of_row.values() for one in ones}

    def judge(self, row: Row, rivals: Sequence[Row], free: Mapping[str, PushOperation]) -> Finding:
        """Return what the listing suggests about *row*.

        Args:
            row: One of those that were asked about, as it is by now. If it is QUEUED, an earlier
                process may have sent it, and its store was restored since.
            rivals: The company's rows with ghosts.
            free: The new pushes that no row owns, by key.
        """
        new, past, old = self._of_row[row.id]
        fresh = {key: free[key] for one in new if (key := one.push_operation_key) in free}
        if row.state is State.QUEUED:
            rivals = [*rivals, *(one for one in self.asked if one.state is State.QUEUED)]
        rivals = [one for one in rivals if one.lane == row.lane and one.id != row.id]
        agreeing = [key for key, one in fresh.items() if self._match(row, one) is Match.AGREES]
        if row.state is State.QUEUED:
            return self._already_there(row, [fresh[key] for key in agreeing], rivals)
        silent = [key for key, one in fresh.items() if self._match(row, one) is Match.SILENT]
        like = agreeing + silent
        if past and len(agreeing) == 1 and agreeing[0] not in old:
            # Without a natural key, a silent push might turn out to agree as well.
            alone = row.natural_key is not None or not silent
            if alone and not self._is_contested(fresh[agreeing[0]], rivals):
                return Finding(key=agreeing[0], evidence=Evidence.AGREEING_ECHO)
        # A platform may rewrite leaves, but not the natural key.
        only = len(fresh) == 1 and not rivals and bool(row.natural_key is None or like)
        # Else a push that the list left out when the mark was taken may look new.
        timed = row.mark is not None and row.mark.taken_at is not None
        timed = timed and all(one.requested_on_utc for one in fresh.values())
        if past and timed and self.exclusive and only and old.isdisjoint(fresh):
            return Finding(key=next(iter(fresh)), evidence=Evidence.ONLY_ONE_NEW)
        if past and not fresh:
            return Finding(Verdict.ABSENT)
        waits = past and any(key not in old and not fresh[key].is_final for key in like)
        keys = dict.fromkeys((*like, *fresh))
        return Finding(Verdict.UNRESOLVED, candidates=(*keys,)[:_MOST_CANDIDATES], waits=waits)

    def _match(self, row: Row, operation: PushOperation) -> Match:
        pair = row.id, operation.push_operation_key
        if pair not in self._matches:
            self._matches[pair] = match(row, operation)
        return self._matches[pair]

    def _is_contested(self, operation: PushOperation, rivals: Sequence[Row]) -> bool:
        return any(
            is_of_kind(one, operation) and self._match(one, operation) is not Match.DIFFERS
            for one in rivals
        )

    def conclude(
        self,
        rows: Sequence[Row],
        rivals: Sequence[Row],
        free: dict[str, PushOperation],
        *,
        before: Mapping[str, Finding | None],
        waited: Mapping[str, float],
        patience: float,
    ) -> Iterator[tuple[Row, Finding, Event | None, dict[str, Any]]]:
        """Yield what the listing suggests about which row, and what follows. None: nothing yet.

        A push that is found is no candidate for the others, and its row no rival (but for a
        further ghost). So a row may come again, until nothing more is found.

        Args:
            rows: The rows as they are by now.
            rivals: The company's rows with ghosts.
            free: The new pushes that no row owns, by key; those that are found are removed.
            before: What the listing before suggested, by row.
            waited: Seconds for which LOST rows had been searched for when the listing was
                requested; of others among them only a proof of their key counts.
            patience: Seconds after which the absence of a push counts.
        """

        def counts(row: Row, now: Finding) -> bool:
            if now.evidence is Evidence.AGREEING_ECHO:
                return True
            if row.state is State.DOUBT:
                enough = self.listing is not None
            else:
                longer = PENDING_PATIENCE if now.waits else 1.0
                enough = waited.get(row.id, -inf) >= patience * longer
            return enough and (now.verdict is Verdict.UNRESOLVED or now == before.get(row.id))

        left, more = list(rows), True
        while more:
            more = False
            for row in tuple(left):
                finding = self.judge(row, rivals, free)
                if finding.key is None or not counts(row, finding):
                    continue
                more = True
                left.remove(row)
                del free[finding.key]
                if row.ghosts <= 1:
                    rivals = [one for one in rivals if one.id != row.id]
                found = dict[str, Any](key=finding.key, evidence=finding.evidence)
                yield row, finding, Event.FOUND, found
        for row in left:
            finding = self.judge(row, rivals, free)
            facts = dict[str, Any](verdict=finding.verdict, candidates=finding.candidates)
            known = finding.verdict is row.verdict and finding.candidates == row.candidates
            settles = finding.key is None and counts(row, finding) and not known
            yield row, finding, Event.UNSETTLED if settles else None, facts

    def _already_there(
        self, row: Row, agreeing: Sequence[PushOperation], rivals: Sequence[Row]
    ) -> Finding:
        """Without a mark only a natural key is evidence enough, in one push that succeeded."""
        can_be_told = row.natural_key is not None and kind_of(row) == "record"
        if not can_be_told or [one.status for one in agreeing] != [PushStatus.SUCCESS]:
            return Finding()
        if self._is_contested(agreeing[0], rivals):
            return Finding()
        return Finding(key=agreeing[0].push_operation_key, evidence=Evidence.AGREEING_ECHO)
