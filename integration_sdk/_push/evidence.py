"""Which of the listed pushes is ours? What a listing proves about a row in doubt.

"New" is a set difference: listed now, not listed in the snapshot taken before the send, not
owned by another row. About the new pushes of the lane::

    E2          exactly one agrees with what we sent, on the natural key or on every leaf,
                and it cannot be a rival's
    E1          there is exactly one; the journal is the lane's only writer, the search
                has lasted long enough, and the lane has no rival
    ABSENT      the search has lasted long enough and there is none
    UNRESOLVED  the search has lasted long enough and none of the above holds

All but UNRESOLVED require a listing that reaches back past the snapshot and does not contradict
itself or the snapshot. A list may leave rows out, show them late or in disorder, and what one
answer lacks is no evidence alone:

* The snapshot may have left out an old push, which then looks new. So a push proves nothing
  unless it stands above every push of the snapshot, in a list whose times run downwards, and
  its own time, if told, is later than all of theirs and than the answer that the snapshot was
  made from. All these times are the service's own.
* A later listing may leave out a rival push, or ours. So E1 and ABSENT, which rest on what is
  not there, require the listing before to have said the same.

A new push that is still Pending echoes nothing yet, so a search that could end UNRESOLVED because
of one goes on; `PENDING_PATIENCE` bounds that.

What remains possible: the snapshot left out the very newest push, alone, and that was less than a
second old (or the service tells no times, or has put its clock back since). A rival is a row of the
lane that may own an unclaimed push: SENDING, LOST, DOUBT, or CLOSED. Two rows with equal payloads
cannot be told apart, so there is no guessing between them. Without a natural key, different values
prove nothing: platforms rewrite records, so a push that looks different may still be ours. No rule
can detect a stranger's push of the very same record: declaring a natural key asserts that there is
none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice, pairwise
from math import inf
from typing import Any, Final, Protocol

from attrs import define, field, frozen

from integration_sdk._push.agreement import (
    Echoes,
    Said,
    as_written,
    decode,
    leaf,
    says_other,
    value_at,
)
from integration_sdk._push.table import CREATES, Event
from integration_sdk._store.row import Evidence, Lane, Row, Snapshot, State, Verdict
from integration_sdk.models import PushOperation

_MOST_CANDIDATES: Final = 100
"""Candidates kept, the newest; without a snapshot every listed push may be one."""
PENDING_PATIENCE: Final = 20.0
"""How many times longer than usual a search lasts while what may be ours is still Pending."""


class Operation(Protocol):
    """The fields of a listed push that the rules use; ``models.PushOperation`` has them."""

    @property
    def push_operation_key(self) -> str: ...
    @property
    def data_connection_id(self) -> str | None: ...
    @property
    def data_type(self) -> str | None: ...
    @property
    def status(self) -> str: ...
    @property
    def is_final(self) -> bool: ...
    @property
    def requested_on_utc(self) -> datetime | None: ...
    @property
    def data(self) -> Mapping[str, object] | None: ...


@frozen
class ListedPushes:
    """Pushes of one company, newest first as the service lists them.

    whole: Whether the list was read to its end. A listing that stopped early still counts if it
        shows every key of the snapshot.
    at: When its first page was answered, in Unix seconds by the service's own clock, if it told.
    """

    operations: Sequence[Operation]
    whole: bool
    at: int | None = None

    @property
    def keys(self) -> list[str]:
        """The keys, in the listing's order."""
        return [operation.push_operation_key for operation in self.operations]

    @property
    def is_consistent(self) -> bool:
        """Whether each key is listed once, and the times run downwards."""
        times = [one.requested_on_utc for one in self.operations if one.requested_on_utc]
        ordered = all(upper >= lower for upper, lower in pairwise(times))
        return ordered and len(set(self.keys)) == len(self.operations)

    def snapshot(self, snapshot_id: str, newest: int | None = None) -> Snapshot | None:
        """Return a snapshot of all keys, or of the *newest*; None if it would prove nothing."""
        keys = self.keys
        kept = keys[:newest]
        whole = self.whole and len(kept) == len(keys)
        return Snapshot(frozenset(kept), whole, self.at, snapshot_id) if kept or whole else None


@define
class View:
    """What one listing shows of a lane, relative to one snapshot. Sets of pushes are integers.

    fresh: The lane's pushes that are not in the snapshot and had no owner when judging began.
    rows: The lane's rows that may own an unclaimed push, by id; shared by all views of the
        lane.
    reaches_back: Whether only the service's own lag could hide a push newer than the snapshot.
    old: Keys among *fresh* that the snapshot may have left out: they may be anything.
    """

    fresh: Sequence[Operation]
    rows: dict[str, Row]
    reaches_back: bool
    old: Collection[str] = ()
    open: int = field(init=False)
    recent: int = field(init=False)
    pending: int = field(init=False)
    _echoes: Echoes = field(init=False)
    _bits: dict[str, int] = field(init=False)
    _said: dict[str, Said] = field(init=False, factory=dict)
    _contested: int = field(init=False, default=0)
    _counted: int = field(init=False, default=-1)

    def __attrs_post_init__(self) -> None:
        self.open = (1 << len(self.fresh)) - 1
        self._echoes = Echoes([one.data for one in self.fresh])
        self._bits = {one.push_operation_key: 1 << at for at, one in enumerate(self.fresh)}
        self.recent = sum(bit for key, bit in self._bits.items() if key not in self.old)
        self.pending = sum(1 << at for at, one in enumerate(self.fresh) if not one.is_final)

    def settle(self, row_id: str, key: str) -> None:
        """Take the row, and the push *key* that it owns, out of question."""
        self.rows.pop(row_id, None)
        self.open &= ~self._bits.get(key, 0)

    def said(self, row: Row) -> Said:
        """Compare the pushes that are still open with a row."""
        if row.id not in self._said:
            self._said[row.id] = self._echoes.compare(row)
        agreeing, silent = self._said[row.id]
        return Said(agreeing & self.open, silent & self.open)

    def is_contested(self, push: int) -> bool:
        """Whether more than one of the lane's rows may own *push*."""
        if self._counted < 0 or (push & self._contested and self._counted != len(self.rows)):
            self._contested, self._counted = self._of_several(), len(self.rows)
        return bool(push & self._contested)

    def _of_several(self) -> int:
        of_one = of_several = 0
        for row in self.rows.values():
            agreeing, silent = self.said(row)
            of_several |= of_one & (agreeing | silent)
            of_one |= agreeing | silent
        return of_several

    def has_rivals(self, row: Row) -> bool:
        """Whether other rows of the lane may own an unclaimed push."""
        return len(self.rows) > (row.id in self.rows)

    def keys(self, pushes: int) -> Iterator[str]:
        """Yield the keys of a set of pushes, newest first."""
        while pushes:
            first = pushes & -pushes
            yield self.fresh[first.bit_length() - 1].push_operation_key
            pushes ^= first


def new_since(snapshot: Snapshot | None, listing: ListedPushes) -> Sequence[Operation]:
    """Return the listed operations that were not there when the snapshot was taken.

    Without a snapshot that is all of them, which proves nothing, since no listing reaches back.
    """
    if snapshot is None:
        return listing.operations
    known = [at for at, key in enumerate(listing.keys) if key in snapshot.keys]
    below = None if snapshot.whole else max(known, default=-1) + 1
    newer = {one.push_operation_key: one for one in listing.operations[:below]}
    return [one for key, one in newer.items() if key not in snapshot.keys]


def not_newer(snapshot: Snapshot | None, listing: ListedPushes) -> frozenset[str]:
    """Return the keys of new pushes that may be older than the snapshot, which left them out."""
    if snapshot is None:
        return frozenset(listing.keys)
    known = [at for at, key in enumerate(listing.keys) if key in snapshot.keys]
    times = [time for at in known if (time := listing.operations[at].requested_on_utc)]
    first, latest = min(known, default=len(listing.keys)), max(times, default=None)
    return frozenset(
        one.push_operation_key
        for at, one in enumerate(listing.operations)
        if at > first or (one.requested_on_utc and _is_old(one.requested_on_utc, latest, snapshot))
    )


def _is_old(requested: datetime, latest: datetime | None, snapshot: Snapshot) -> bool:
    """Whether a push was *requested* before the snapshot was taken, by the service's own clock."""
    if latest is not None and requested <= latest:
        return True
    return snapshot.taken_at is not None and requested.timestamp() < snapshot.taken_at


def reaches_back(snapshot: Snapshot | None, listing: ListedPushes) -> bool:
    """Whether the listing provably goes back past the snapshot.

    A list that lacks one of its keys (cut off, or left out) or contradicts itself proves nothing.
    """
    if snapshot is None or not listing.is_consistent:
        return False
    return listing.whole if not snapshot.keys else snapshot.keys.issubset(listing.keys)


def in_lane(operation: Operation, lane: Lane, path_names: Mapping[str, str]) -> bool:
    """Whether a push of the lane's company may belong to the lane; a missing name matches.

    *path_names*: From the dialect: operations and paths spell some data types differently.
    """
    return _is_name(operation.data_connection_id, lane.connection_id, path_names) and _is_name(
        operation.data_type, lane.data_type, path_names
    )


def answers_another(operation: PushOperation, row: Row, path_names: Mapping[str, str]) -> bool:
    """Whether the service answered *row* with another's push, as a cache or a proxy does.

    *path_names*: From the dialect, as for `in_lane`.
    """
    is_companys = operation.company_id == row.lane.company_id
    if not is_companys or not in_lane(operation, row.lane, path_names):
        return True
    echo, sent = operation.data, decode(row.payload) if row.payload else None
    if not echo or not isinstance(sent, Mapping) or sent == echo:  # equal in Python agrees in JSON
        return False
    if row.natural_key is None:
        return says_other(sent, echo)
    held = leaf(value_at(echo, row.natural_key))
    return held is not None and as_written(held) != as_written(str(row.natural_value))


def _is_name(name: str | None, own: str, path_names: Mapping[str, str]) -> bool:
    if name is None or name == own:
        return True
    return path_names.get(name, name).casefold() == path_names.get(own, own).casefold()


@frozen
class Finding:
    """What one listing suggests about a row in doubt.

    verdict: None if it shows which push is ours: *key*.
    waits: Whether a candidate is still Pending, and may tell more later.
    """

    verdict: Verdict | None = None
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    waits: bool = False


def judge(row: Row, view: View, *, exclusive: bool) -> Finding:
    """Return what the view of one listing suggests about a row in doubt."""
    agreeing, silent = view.said(row)
    if view.reaches_back and _echo_proves(row, view, agreeing, silent):
        return Finding(key=next(view.keys(agreeing)), evidence=Evidence.AGREEING_ECHO)
    like = agreeing | silent
    if view.reaches_back and exclusive and _may_be_only(row, view, like):
        return Finding(key=next(view.keys(view.open)), evidence=Evidence.ONLY_ONE_NEW)
    if view.reaches_back and not view.open:
        return Finding(Verdict.ABSENT)
    keys = chain.from_iterable(map(view.keys, (agreeing, silent, view.open & ~like)))
    candidates = tuple(islice(keys, _MOST_CANDIDATES))
    waits = view.reaches_back and bool(like & view.recent & view.pending)
    return Finding(Verdict.UNRESOLVED, candidates=candidates, waits=waits)


def is_missing(row: Row) -> bool:
    """Whether a create may be sent again for want of any sign of it; no proof that it is not there.

    The natural key is what the new push can be told by, should both turn up. Candidates of any
    listing stay unexplained.
    """
    if row.state is not State.DOUBT or row.verdict is not Verdict.ABSENT or row.candidates:
        return False
    return row.method == CREATES and None not in {row.natural_key, row.payload}


def is_proved(now: Finding, before: Finding | None, *, enough: bool) -> bool:
    """Whether a finding counts, given that of the listing *before*.

    *enough*: Whether the policy's patience had passed when the listing was requested.
    """
    if now.evidence is Evidence.AGREEING_ECHO:
        return True
    return enough and (now.verdict is Verdict.UNRESOLVED or now == before)


def _echo_proves(row: Row, view: View, agreeing: int, silent: int) -> bool:
    """Rule E2. Without a natural key, a silent push might turn out to agree as well."""
    if agreeing.bit_count() != 1 or (silent and row.natural_key is None):
        return False
    return bool(agreeing & view.recent) and not view.is_contested(agreeing)


def _may_be_only(row: Row, view: View, like: int) -> bool:
    """Rule E1. A platform may rewrite leaves, but not the natural key."""
    if view.open.bit_count() != 1 or not view.open & view.recent or view.has_rivals(row):
        return False
    return row.natural_key is None or bool(like)


# All doubts of a company by one listing

_Of = tuple[Snapshot | None, Lane]


@define
class Judging:
    """Judges the rows in doubt of a company by one listing.

    Args:
        asked: The rows that were in doubt when the listing was requested.
        listing: What it showed; None if it could not be read.
        path_names: From the dialect, as for `in_lane`.
        exclusive: Whether the caller promises to be the lanes' only writer, which allows E1.
    """

    asked: Sequence[Row]
    listing: ListedPushes | None
    path_names: Mapping[str, str]
    exclusive: bool
    _new: dict[_Of, list[Operation]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._new = {
            (snapshot, lane): [
                one
                for one in new_since(snapshot, self._shown)
                if in_lane(one, lane, self.path_names)
            ]
            for snapshot, lane in dict.fromkeys((row.snapshot, row.lane) for row in self.asked)
        }

    @property
    def _shown(self) -> ListedPushes:
        return self.listing or ListedPushes((), whole=False)

    @property
    def new(self) -> dict[str, Operation]:
        """The pushes that may be one of these rows', by key."""
        return {one.push_operation_key: one for ones in self._new.values() for one in ones}

    def conclude(
        self,
        now: Mapping[str, Row],
        rivals: Mapping[Lane, Mapping[str, Row]],
        free: Mapping[str, Operation],
        *,
        found: dict[str, Finding],
        waited: Mapping[str, float],
        patience: float,
    ) -> Iterator[tuple[Row, Event, dict[str, Any]]]:
        """Yield what happens to which row. A push that is found is no candidate for the others.

        Args:
            now: The rows as they are by now, by id.
            rivals: The rows of each lane that may own an unclaimed push.
            free: The new pushes that no row owns, by key.
            found: What the listing before suggested; updated.
            waited: Seconds for which LOST rows had been searched for when the listing was
                requested; of others among them only a proof of their key counts.
            patience: Seconds after which the absence of a push counts.
        """
        views = self._views(rivals, free)
        left = [
            (row, views[asked.snapshot, row.lane])
            for asked in self.asked
            if (row := now.get(asked.id)) is not None and row.state in {State.LOST, State.DOUBT}
        ]
        before = {row.id: found.get(row.id) for row, _ in left}

        def counts(row: Row, finding: Finding) -> bool:
            return self._counts(row, finding, before[row.id], waited.get(row.id, -inf), patience)

        more = True
        while more:
            judged, left = left, []
            for row, view in judged:
                finding = found[row.id] = judge(row, view, exclusive=self.exclusive)
                if finding.key is None or not counts(row, finding):
                    left.append((row, view))
                    continue
                for one in views.values():
                    one.settle(row.id, finding.key)
                yield row, Event.FOUND, {"key": finding.key, "evidence": finding.evidence}
            more = len(left) < len(judged)
        for row, _ in left:
            finding = found[row.id]
            facts = self._unsettled(row, finding)
            if facts is not None and finding.key is None and counts(row, finding):
                yield row, Event.UNSETTLED, facts

    def _counts(
        self, row: Row, finding: Finding, before: Finding | None, waited: float, patience: float
    ) -> bool:
        if row.state is State.DOUBT:
            return self.listing is not None and is_proved(finding, before, enough=True)
        patience *= PENDING_PATIENCE if finding.waits else 1.0
        return is_proved(finding, before, enough=waited >= patience)

    def _unsettled(self, row: Row, finding: Finding) -> dict[str, Any] | None:
        facts = {"verdict": finding.verdict, "candidates": finding.candidates}
        known = row.state is State.DOUBT and (row.verdict, row.candidates) == tuple(facts.values())
        return None if known else facts

    def _views(
        self, rivals: Mapping[Lane, Mapping[str, Row]], free: Mapping[str, Operation]
    ) -> dict[_Of, View]:
        rows = {lane: dict(rivals.get(lane, {})) for _, lane in self._new}
        return {
            (snapshot, lane): View(
                [free[key] for one in ones if (key := one.push_operation_key) in free],
                rows[lane],
                reaches_back(snapshot, self._shown),
                not_newer(snapshot, self._shown),
            )
            for (snapshot, lane), ones in self._new.items()
        }


def awaits_another(row: Row, finding: Finding | None) -> bool:
    """Whether another listing could confirm what the last one suggests about a row in DOUBT."""
    if finding is None or row.state is not State.DOUBT:
        return False
    is_news = finding.verdict is Verdict.ABSENT and row.verdict is not Verdict.ABSENT
    return is_news or finding.key is not None


def may_resend(
    row: Row, finding: Finding | None, rows: Mapping[str, Row], *, transmissions: int
) -> bool:
    """Whether a row in DOUBT may be sent again without asking the caller about this one.

    Args:
        row: It must be missing on record, ...
        finding: ... and by the last listing of this process: an earlier one's word is old.
        rows: Rows by id, for its parents.
        transmissions: Maximum for one record, so that what swallows requests does not get them
            for ever.
    """
    if not is_missing(row) or finding != Finding(Verdict.ABSENT):
        return False
    sent, parent = 1, rows.get(row.parent or "")
    while parent is not None:  # a refused parent is settled, and not kept
        sent, parent = sent + 1, rows.get(parent.parent or "")
    return sent < transmissions
