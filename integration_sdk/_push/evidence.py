"""Which of the listed pushes is ours? What a listing proves about an intent in doubt.

"New" is a set difference: listed now, not listed in the snapshot taken before the send, not
claimed by another intent. About the new pushes of the lane::

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

What remains possible: the snapshot left out the very newest push, alone, and that was less than a
second old (or the service tells no times). A rival is an intent of
the lane that may own an unclaimed push: SENDING, AMBIGUOUS, ABSENT, UNRESOLVED, or given up by
the caller without a key. Two intents with equal payloads cannot be told apart, so there is no
guessing between them. Without a natural key, different values prove nothing: platforms rewrite
records, so a push that looks different may still be ours. No rule can detect a stranger's push
of the very same record: declaring a natural key asserts that there is none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import Protocol

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
from integration_sdk._store.row import CREATES, Evidence, Intent, Lane, Snapshot, State
from integration_sdk.models import PushOperation

_MOST_CANDIDATES = 100
"""Candidates kept, the newest; without a snapshot every listed push may be one."""


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

    def snapshot(self, newest: int | None = None) -> Snapshot | None:
        """Return a snapshot of all keys, or of the *newest*; None if it would prove nothing."""
        keys = self.keys
        kept = keys[:newest]
        whole = self.whole and len(kept) == len(keys)
        return Snapshot(frozenset(kept), whole, self.at) if kept or whole else None


@define
class View:
    """What one listing shows of a lane, relative to one snapshot. Sets of pushes are integers.

    fresh: The lane's pushes that are not in the snapshot and had no owner when judging began.
    rows: The lane's intents that may own an unclaimed push, by id; shared by all views of the
        lane.
    reaches_back: Whether only the service's own lag could hide a push newer than the snapshot.
    old: Keys among *fresh* that the snapshot may have left out: they may be anything.
    """

    fresh: Sequence[Operation]
    rows: dict[str, Intent]
    reaches_back: bool
    old: Collection[str] = ()
    open: int = field(init=False)
    recent: int = field(init=False)
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

    def settle(self, intent_id: str, key: str) -> None:
        """Take the intent, and the push *key* that it owns, out of question."""
        self.rows.pop(intent_id, None)
        self.open &= ~self._bits.get(key, 0)

    def said(self, intent: Intent) -> Said:
        """Compare the pushes that are still open with an intent."""
        if intent.id not in self._said:
            self._said[intent.id] = self._echoes.compare(intent)
        agreeing, silent = self._said[intent.id]
        return Said(agreeing & self.open, silent & self.open)

    def is_contested(self, push: int) -> bool:
        """Whether more than one of the lane's intents may own *push*."""
        if self._counted < 0 or (push & self._contested and self._counted != len(self.rows)):
            self._contested, self._counted = self._of_several(), len(self.rows)
        return bool(push & self._contested)

    def _of_several(self) -> int:
        of_one = of_several = 0
        for intent in self.rows.values():
            agreeing, silent = self.said(intent)
            of_several |= of_one & (agreeing | silent)
            of_one |= agreeing | silent
        return of_several

    def has_rivals(self, intent: Intent) -> bool:
        """Whether other intents of the lane may own an unclaimed push."""
        return len(self.rows) > (intent.id in self.rows)

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


def answers_another(
    operation: PushOperation, intent: Intent, path_names: Mapping[str, str]
) -> bool:
    """Whether the service answered *intent* with another's push, as a cache or a proxy does.

    *path_names*: From the dialect, as for `in_lane`.
    """
    is_companys = operation.company_id == intent.lane.company_id
    if not is_companys or not in_lane(operation, intent.lane, path_names):
        return True
    echo, sent = operation.data, decode(intent.payload) if intent.payload else None
    if not echo or not isinstance(sent, Mapping):
        return False
    if intent.natural_key is None:
        return says_other(sent, echo)
    held = leaf(value_at(echo, intent.natural_key))
    return held is not None and as_written(held) != as_written(str(intent.natural_value))


def _is_name(name: str | None, own: str, path_names: Mapping[str, str]) -> bool:
    if name is None or name == own:
        return True
    return path_names.get(name, name).casefold() == path_names.get(own, own).casefold()


@frozen
class Verdict:
    """What a listing proves about an intent in doubt."""

    state: State
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()


def judge(intent: Intent, view: View, *, exclusive: bool) -> Verdict:
    """Return what the view of one listing suggests about an intent in doubt."""
    agreeing, silent = view.said(intent)
    if view.reaches_back and _echo_proves(intent, view, agreeing, silent):
        return Verdict(State.RESOLVED, next(view.keys(agreeing)), Evidence.AGREEING_ECHO)
    like = agreeing | silent
    if view.reaches_back and exclusive and _may_be_only(intent, view, like):
        return Verdict(State.RESOLVED, next(view.keys(view.open)), Evidence.ONLY_ONE_NEW)
    if view.reaches_back and not view.open:
        return Verdict(State.ABSENT)
    keys = chain.from_iterable(map(view.keys, (agreeing, silent, view.open & ~like)))
    return Verdict(State.UNRESOLVED, candidates=tuple(islice(keys, _MOST_CANDIDATES)))


def is_missing(intent: Intent) -> bool:
    """Whether a create may be sent again for want of any sign of it; no proof that it is not there.

    The natural key is what the new push can be told by, should both turn up. Candidates of any
    listing stay unexplained.
    """
    if intent.state is not State.ABSENT or intent.candidates:
        return False
    return intent.method == CREATES and None not in {intent.natural_key, intent.payload}


def is_proved(now: Verdict, before: Verdict | None, *, searched_enough: bool) -> bool:
    """Whether a conclusion counts, given that of the listing *before*.

    *searched_enough*: Whether `Policy.search_patience` had passed when the listing was requested.
    """
    if now.evidence is Evidence.AGREEING_ECHO:
        return True
    return searched_enough and (now.state is State.UNRESOLVED or now == before)


def _echo_proves(intent: Intent, view: View, agreeing: int, silent: int) -> bool:
    """Rule E2. Without a natural key, a silent push might turn out to agree as well."""
    if agreeing.bit_count() != 1 or (silent and intent.natural_key is None):
        return False
    return bool(agreeing & view.recent) and not view.is_contested(agreeing)


def _may_be_only(intent: Intent, view: View, like: int) -> bool:
    """Rule E1. A platform may rewrite leaves, but not the natural key."""
    if view.open.bit_count() != 1 or not view.open & view.recent or view.has_rivals(intent):
        return False
    return intent.natural_key is None or bool(like)
