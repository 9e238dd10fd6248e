"""Which of the listed pushes is ours? What a listing proves about an intent in doubt.

"New" is a set difference, never a comparison of clocks: listed now, not listed in the
snapshot taken before the send, not claimed by another intent. On the new ones of the lane::

    E2          exactly one agrees with what we sent, on the natural key or on every leaf,
                and it cannot be a rival's
    E1          exactly one at all; the journal is the lane's only writer, the quiet period
                has passed, and the lane has no rival
    ABSENT      the quiet period has passed and each new one, if any, is somebody else's
    UNRESOLVED  the quiet period has passed and none of the above

All but UNRESOLVED want a listing that reaches back past the snapshot. A rival is an intent of
the lane that may own a push nobody has claimed: SENDING, AMBIGUOUS, ABSENT, UNRESOLVED, or
given up by the caller without a key. Equal payloads of one caller cannot be told apart, and
are not guessed at. What no rule can see is a stranger's push of the very same record: to
declare a natural key is to say that there is none.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

from attrs import frozen

from integration_sdk._sansio.pushing.agreement import agrees, decode, has_leaves, leaf, value_at
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
class Listing:
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


@frozen
class View:
    """What one listing shows of a lane, seen from one snapshot.

    fresh: New in the lane and unclaimed. reaches_back: Nothing newer than the snapshot can
        be missing but by the service's own lag.
    """

    fresh: tuple[Operation, ...]
    reaches_back: bool


def new_since(snapshot: Snapshot | None, listing: Listing) -> Sequence[Operation]:
    """Operations listed now that were not there when the snapshot was taken.

    Without a snapshot any may be new, and no listing reaches back: none proves anything.
    """
    if snapshot is None:
        return listing.operations
    known = [at for at, key in enumerate(listing.keys) if key in snapshot.keys]
    below = None if snapshot.whole else max(known, default=-1) + 1
    newer = listing.operations[:below]
    return [one for one in newer if one.push_operation_key not in snapshot.keys]


def reaches_back(snapshot: Snapshot | None, listing: Listing) -> bool:
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
    names = (operation.data_connection_id, operation.data_type)
    ours = (lane.connection_id, lane.data_type)
    return all(
        name is None or path_names.get(name, name).casefold() == path_names.get(own, own).casefold()
        for name, own in zip(names, ours, strict=True)
    )


class Match(Enum):
    """Whether an operation echoes an intent's record."""

    YES = "agrees"
    NO = "says something else"
    UNKNOWN = "says nothing"


def match(intent: Intent, operation: Operation) -> Match:
    """Compare an echo with what we sent: by the natural key, else leaf by leaf."""
    if not operation.data:
        return Match.UNKNOWN
    if intent.natural_key is not None:
        echoed = leaf(value_at(operation.data, intent.natural_key))
        return _told(echoed, echoed == intent.natural_value)
    sent = decode(intent.payload) if intent.payload else None
    if agrees(sent, operation.data):
        return _told(has_leaves(sent), same=True)
    return Match.NO if _contradicts(sent, operation.data) else Match.UNKNOWN


def _contradicts(sent: object, echo: object) -> bool:
    """Whether the echo says something else, rather than less: platforms drop fields."""
    if sent is None or echo is None:
        return False
    if isinstance(sent, Mapping):
        if not isinstance(echo, Mapping):
            return True
        return any(_contradicts(value, echo.get(name)) for name, value in sent.items())
    if isinstance(sent, list | tuple):
        if not isinstance(echo, list | tuple) or len(echo) != len(sent):
            return True
        return any(map(_contradicts, sent, echo))
    return leaf(sent) != leaf(echo)


def _told(says_something: object, same: bool) -> Match:
    if not says_something:
        return Match.UNKNOWN
    return Match.YES if same else Match.NO


@frozen
class Verdict:
    """Where a listing leads an intent in doubt."""

    state: State
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()


def judge(
    intent: Intent,
    view: View,
    rivals: Collection[Intent],
    *,
    exclusive: bool,
    quiet: bool,
) -> Verdict | None:
    """Say what the view proves; None: not yet, look again.

    Args:
        intent: In doubt.
        view: From a listing asked for after the intent was sent.
        rivals: The lane's other intents that may own an unclaimed push.
        exclusive: The caller declared that nobody else writes to the lane.
        quiet: The quiet period of this intent had passed when the listing was asked for.
    """
    said = {one.push_operation_key: match(intent, one) for one in view.fresh}
    agreeing = [one for one in view.fresh if said[one.push_operation_key] is Match.YES]
    silent = [one for one in view.fresh if said[one.push_operation_key] is Match.UNKNOWN]
    if view.reaches_back and _echo_proves(intent, agreeing, silent, rivals):
        return Verdict(State.RESOLVED, agreeing[0].push_operation_key, Evidence.AGREEING_ECHO)
    if not quiet:
        return None
    if view.reaches_back and exclusive and not rivals and _may_be_only(intent, view, said):
        return Verdict(State.RESOLVED, view.fresh[0].push_operation_key, Evidence.ONLY_ONE_NEW)
    if view.reaches_back and not agreeing and not silent and not (exclusive and view.fresh):
        return Verdict(State.ABSENT)
    keys = [one.push_operation_key for one in (*agreeing, *silent)]
    candidates = keys or list(said if exclusive else ())
    return Verdict(State.UNRESOLVED, candidates=tuple(candidates[:_MOST_CANDIDATES]))


def _echo_proves(
    intent: Intent,
    agreeing: Sequence[Operation],
    silent: Sequence[Operation],
    rivals: Collection[Intent],
) -> bool:
    """E2. Without a natural key a silent newcomer could turn out to agree as well."""
    if len(agreeing) != 1 or (silent and intent.natural_key is None):
        return False
    return all(match(rival, agreeing[0]) is Match.NO for rival in rivals)


def _may_be_only(intent: Intent, view: View, said: Mapping[str, Match]) -> bool:
    """E1. A platform may rewrite leaves, but not what tells the record from others."""
    if len(view.fresh) != 1:
        return False
    return intent.natural_key is None or said[view.fresh[0].push_operation_key] is not Match.NO
