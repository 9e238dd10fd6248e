"""The seam between the push protocol and whoever drives it: effects, reports, the ledger.

A machine (in ``protocol`` and ``reconcile``) is a generator. It yields an effect, is resumed
with the driver's report, and returns its result; it reads no clock, knows no socket and no
file. aiohttp and SQLite drive it in production, a seeded simulator drives it in the tests: the
same code in both. All that a driver has to do::

    effect             the driver                               reports (machine.send)
    -----------------  ---------------------------------------  ----------------------------
    Commit(rows)       await journal.commit(rows); durable      None, or throws the
                       before it reports                        JournalError in
    Send(row)          waits for its turn; makes the row        Answer: ``never left`` if
                       durable; sends it right after, once:     the row is not durable
                       no redirect, no re-send of its own
    List(company, ..)  lists the company's pushes, newest       ListedPushes, or None: not to be
                       first, to the end or past the snapshot   had now
    Fetch(.., keys)    reads these pushes singly                those it could read
    FindOwners(keys)   await journal.owners(keys)               the keys that have an owner
    Sleep(seconds)     waits that long or longer                its steady clock (a float), or
                                                                None: give up (closing, too late)

A cancelled task is a report like any other: cut a Send short and report ``may have left``,
cut a Sleep short and report None, but let Commit and FindOwners finish; a JournalError of
either is thrown in. Dropping a machine half-way is a crash, and as safe as one; where the
process lives on, `protocol.break_off` then says where a dropped `transmit` leaves its intent.
Machines of one ledger may run side by side on one thread.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from math import inf
from typing import TypeAlias, TypeVar

from attrs import define, field, frozen

from integration_sdk._sansio.pushing.evidence import ListedPushes, Operation
from integration_sdk._sansio.pushing.intents import DOUBTED, Answer, Intent, Lane, State


@frozen
class Commit:
    """Make these rows durable, all or none."""

    rows: tuple[Intent, ...]


@frozen
class Send:
    """Transmit the intent once, its SENDING row durable right before.

    What waits for its turn is not on record as SENDING: a crash leaves nothing to look for.
    """

    row: Intent


@frozen
class List:
    """List the company's pushes.

    known: Once all of these keys have been seen, reading back may stop; None for a snapshot,
        which is as deep as the driver makes it.
    old: These are new to nobody: only their keys matter. A key that is *known* and not *old*
        was there before some intents and not before others: its operation is wanted in full.
    """

    company_id: str
    known: frozenset[str] | None = None
    old: frozenset[str] = frozenset()


@frozen
class Fetch:
    """Read these pushes singly: the list did not give their ``data``."""

    company_id: str
    keys: tuple[str, ...]


@frozen
class FindOwners:
    """Ask the journal which of these keys belong to an intent."""

    keys: frozenset[str]


@frozen
class Sleep:
    """Wait at least so many seconds."""

    seconds: float


Effect: TypeAlias = Commit | Send | List | Fetch | FindOwners | Sleep
Report: TypeAlias = float | Answer | ListedPushes | Sequence[Operation] | Collection[str] | None
_T = TypeVar("_T")
Machine: TypeAlias = Generator[Effect, Report, _T]


@frozen(kw_only=True)
class Policy:
    """How patient to be, and what the service and the caller promise. Times are seconds.

    exclusive: The caller: nobody but this journal writes to the lanes, nor has so lately that a
        lagging list could show it as new. Allows E1.
    refuses_with_503, path_names: The dialect's.
    replays: The dialect's as well: the service carries out once what comes under one idempotency
        key, so a create in doubt may be sent again. A journal may hold keys of another dialect.
    tries: Transmissions of one intent at most: after NOT_SENT, 429 and 503, and replays.
    first_wait, longest_wait: Full jitter grows from one to the other; Retry-After is a floor.
    longest_pause: Where the service asks to stay away for longer, an intent is given up.
    replay_window: How long an idempotency key is relied upon. Assumed: answers are kept for
        90 minutes; a third is left for waits that turn out longer.
    first_look, quiet_period: When a company in doubt is listed first; and how long its list
        must have had the time to show a push before silence counts.
    """

    exclusive: bool = False
    refuses_with_503: bool = True
    path_names: Mapping[str, str] = field(factory=dict)
    replays: bool = True
    tries: int = 5
    first_wait: float = 1.0
    longest_wait: float = 20.0
    longest_pause: float = inf
    replay_window: float = 3600.0
    first_look: float = 0.5
    quiet_period: float = 30.0

    def waits_for(self, answer: Answer) -> bool:
        """Whether the service asks to stay away for no longer than is waited."""
        return (answer.retry_after or 0.0) <= self.longest_pause


@define
class Ledger:
    """What this process knows of intents that are not settled, and who claims which key.

    keeps_acknowledged: Whether the end of an acknowledged push has to be put on record. Without
        a file it has not: such a push is forgotten here, and the journal alone has its key.
    unrecorded: Outcomes that are known here and that the disk refused, by intent: `catch_up`
        tries again, and after a crash they are found out again.
    read: Final pushes that were read singly for their echo, by key, while anything is in doubt.
    """

    keeps_acknowledged: bool = True
    _rows: dict[str, Intent] = field(factory=dict)
    _lanes: dict[Lane, dict[str, Intent]] = field(factory=dict)
    _claims: dict[str, str] = field(factory=dict)
    unrecorded: dict[str, Intent] = field(factory=dict)
    read: dict[str, Operation] = field(factory=dict)

    def note(self, intent: Intent) -> None:
        """Replace what is known of an intent; what needs no more attention is forgotten."""
        self._forget(intent)
        if intent.is_settled or (intent.state is State.ACKED and not self.keeps_acknowledged):
            return
        self._rows[intent.id] = intent
        if intent.key:
            self._claims[intent.key] = intent.id
        if intent.may_own_unclaimed:
            self._lanes.setdefault(intent.lane, {})[intent.id] = intent

    def _forget(self, intent: Intent) -> None:
        before = self._rows.pop(intent.id, None)
        if before and before.key and self._claims.get(before.key) == intent.id:
            del self._claims[before.key]
        lane = self._lanes.get(intent.lane, {})
        if lane.pop(intent.id, None) and not lane:
            del self._lanes[intent.lane]
        if not self._lanes:
            self.read.clear()

    def get(self, intent_id: str) -> Intent | None:
        """Return the intent as it stands; None once it is settled, or unknown."""
        return self._rows.get(intent_id)

    def owner(self, key: str) -> str | None:
        """Return the unsettled intent that claims *key*."""
        return self._claims.get(key)

    def contenders(self, lane: Lane) -> dict[str, Intent]:
        """Return the lane's intents that may own an unclaimed push, by id."""
        return dict(self._lanes.get(lane, {}))

    def doubted(self, company_id: str | None = None) -> list[Intent]:
        """Return what a listing could settle, of one company or all."""
        lanes = [rows for lane, rows in self._lanes.items() if company_id in (None, lane[0])]
        return [one for rows in lanes for one in rows.values() if one.state in DOUBTED]
