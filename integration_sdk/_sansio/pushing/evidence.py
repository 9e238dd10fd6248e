"""Which of the listed pushes is ours? What a listing proves about an intent in doubt.

"New" is a set difference, never a comparison of clocks: listed now, not listed in the
snapshot taken before the send, not claimed by another intent. On the new ones of the lane::

    E2          exactly one agrees with what we sent, on the natural key or on every leaf,
                and it cannot be a rival's
    E1          exactly one at all; the journal is the lane's only writer, the quiet period
                has passed, and the lane has no rival
    ABSENT      the quiet period has passed and there is none, or the natural key of each
                says that it is another record, in a lane that others write to
    UNRESOLVED  the quiet period has passed and none of the above

All but UNRESOLVED want a listing that reaches back past the snapshot. A rival is an intent of
the lane that may own a push nobody has claimed: SENDING, AMBIGUOUS, ABSENT, UNRESOLVED, or
given up by the caller without a key. Equal payloads of one caller cannot be told apart, and
are not guessed at. Other values without a natural key explain nothing: platforms rewrite
records, and what looks like another may be ours. What no rule can see is a stranger's push of
the very same record: to declare a natural key is to say that there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

from attrs import define, field, frozen

from integration_sdk._sansio.pushing.echoes import Echoes, Said
from integration_sdk._sansio.pushing.intents import Evidence, Intent, Lane, Snapshot, State

_MOST_CANDIDATES = 100
"""The newest are kept; without a snapshot a whole history may be in question."""


class Operation(Protocol):
    """A listed push, as far as the rules look at it; ``models.PushOperation`` is one."""

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
    def data(self) -> Mapping[str, object] | None: ...


@frozen
class ListedPushes:
    """Pushes of one company, newest first as the service lists them.

    whole: Read to the end of the list. A listing that stopped early still counts where every
        key of the snapshot was seen.
    """

    operations: Sequence[Operation]
    whole: bool

    @property
    def keys(self) -> list[str]:
        """The keys, in the listing's order."""
        return [operation.push_operation_key for operation in self.operations]

    def snapshot(self, newest: int | None = None) -> Snapshot | None:
        """Remember the keys listed, or the *newest* so many; None where that says nothing."""
        keys = self.keys
        kept = keys[:newest]
        whole = self.whole and len(kept) == len(keys)
        return Snapshot(frozenset(kept), whole=whole) if kept or whole else None


@define
class View:
    """What one listing shows of a lane, seen from one snapshot. Sets of pushes are integers.

    fresh: New to the snapshot, of the lane, owned by nobody when the listing was judged.
    rows: The lane's intents that may own a push nobody has claimed, by id; those of one lane
        share them.
    reaches_back: Nothing newer than the snapshot can be missing but by the service's own lag.
    """

    fresh: Sequence[Operation]
    rows: dict[str, Intent]
    reaches_back: bool
    open: int = field(init=False)
    _echoes: Echoes = field(init=False)
    _bits: dict[str, int] = field(init=False)
    _said: dict[str, Said] = field(init=False, factory=dict)
    _contested: int = field(init=False, default=0)
    _counted: int = field(init=False, default=-1)

    def __attrs_post_init__(self) -> None:
        self.open = (1 << len(self.fresh)) - 1
        self._echoes = Echoes([one.data for one in self.fresh])
        self._bits = {one.push_operation_key: 1 << at for at, one in enumerate(self.fresh)}

    def settle(self, intent_id: str, key: str) -> None:
        """The push *key* is this intent's: neither is in question any more."""
        self.rows.pop(intent_id, None)
        self.open &= ~self._bits.get(key, 0)

    def said(self, intent: Intent) -> Said:
        """Return what the pushes that are still open say of an intent."""
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
        """Whether the lane has others that may own a push nobody has claimed."""
        return len(self.rows) > (intent.id in self.rows)

    def keys(self, pushes: int) -> Iterator[str]:
        """Name the pushes of a set, newest first."""
        while pushes:
            first = pushes & -pushes
            yield self.fresh[first.bit_length() - 1].push_operation_key
            pushes ^= first


def new_since(snapshot: Snapshot | None, listing: ListedPushes) -> Sequence[Operation]:
    """Operations listed now that were not there when the snapshot was taken.

    Without a snapshot any may be new, and no listing reaches back: none proves anything.
    """
    if snapshot is None:
        return listing.operations
    known = [at for at, key in enumerate(listing.keys) if key in snapshot.keys]
    below = None if snapshot.whole else max(known, default=-1) + 1
    newer = listing.operations[:below]
    return [one for one in newer if one.push_operation_key not in snapshot.keys]


def reaches_back(snapshot: Snapshot | None, listing: ListedPushes) -> bool:
    """Whether the listing provably goes back past the snapshot.

    A list that shares no key with it (cut off, or of another company) proves nothing.
    """
    if snapshot is None:
        return False
    listed = snapshot.keys.intersection(listing.keys)
    if not snapshot.keys:
        return listing.whole
    return bool(listed) and (listing.whole or listed == snapshot.keys)


def in_lane(operation: Operation, lane: Lane, path_names: Mapping[str, str]) -> bool:
    """Whether a push of the lane's company is one of the lane's; a name not given may be.

    *path_names*: the dialect's, since operations and paths spell some data types differently.
    """
    return _is_name(operation.data_connection_id, lane.connection_id, path_names) and _is_name(
        operation.data_type, lane.data_type, path_names
    )


def _is_name(name: str | None, own: str, path_names: Mapping[str, str]) -> bool:
    if name is None or name == own:
        return True
    return path_names.get(name, name).casefold() == path_names.get(own, own).casefold()


@frozen
class Verdict:
    """Where a listing leads an intent in doubt."""

    state: State
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()


def judge(intent: Intent, view: View, *, exclusive: bool, quiet: bool) -> Verdict | None:
    """Say what the view proves; None: not yet, look again.

    Args:
        intent: In doubt.
        view: From a listing asked for after the intent was sent.
        exclusive: The caller declared that nobody else writes to the lane.
        quiet: The quiet period of this intent had passed when the listing was asked for.
    """
    agreeing, silent = view.said(intent)
    if view.reaches_back and _echo_proves(intent, view, agreeing, silent):
        return Verdict(State.RESOLVED, next(view.keys(agreeing)), Evidence.AGREEING_ECHO)
    if not quiet:
        return None
    if view.reaches_back and exclusive and _may_be_only(intent, view, agreeing | silent):
        return Verdict(State.RESOLVED, next(view.keys(view.open)), Evidence.ONLY_ONE_NEW)
    like = agreeing | silent
    unlike = view.open & ~like if exclusive or intent.natural_key is None else 0
    if view.reaches_back and not like | unlike:
        return Verdict(State.ABSENT)
    keys = chain.from_iterable(map(view.keys, (agreeing, silent, unlike)))
    return Verdict(State.UNRESOLVED, candidates=tuple(islice(keys, _MOST_CANDIDATES)))


def _echo_proves(intent: Intent, view: View, agreeing: int, silent: int) -> bool:
    """E2. Without a natural key a silent newcomer could turn out to agree as well."""
    if agreeing.bit_count() != 1 or (silent and intent.natural_key is None):
        return False
    return not view.is_contested(agreeing)


def _may_be_only(intent: Intent, view: View, like: int) -> bool:
    """E1. A platform may rewrite leaves, but not what tells the record from others."""
    if view.open.bit_count() != 1 or view.has_rivals(intent):
        return False
    return intent.natural_key is None or bool(like)
