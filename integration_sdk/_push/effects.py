"""The interface between the push protocol and its driver: effects, reports, the ledger.

A machine (in ``protocol`` and ``reconcile``) is a generator. It yields an effect, is resumed
with the driver's report, and returns its result; it uses no clock, socket or file. The same code
is driven by aiohttp and SQLite in production, and by a seeded simulator in the tests. All that a
driver has to do::

    effect                the driver                              reports (machine.send)
    --------------------  --------------------------------------  ---------------------------
    Commit(rows)          await journal.commit(rows); durable     None, or throws the
                          before it reports                       JournalError in
    Send(row)             waits for its turn; makes the row       SendResult: ``never left`` if
                          durable; sends it right after, once:    the row is not durable
                          no redirect, no re-send of its own
    ListPushes(..)        lists the company's pushes, newest      ListedPushes, or None: not to
                          first, to the end or past the snapshot  be had now
    ReadSingly(.., keys)  reads these pushes singly               those it could read
    FindOwners(keys)      await journal.owners(keys)              the keys that have an owner
    Sleep(seconds)        waits that long or longer               its steady clock (a float), or
                                                                  None: give up (closing, too
                                                                  late)

When its task is cancelled, a driver stops a Send and reports what is certain (``never left`` or
``may have left``), begins no other, reports None for a Sleep or ListPushes and nothing for a
ReadSingly, lets a Commit finish, and throws a JournalError for FindOwners if there is no answer.
Dropping a machine half-way is as safe as a crash; if the process lives on, `protocol.break_off`
returns the state of an intent whose `transmit` was dropped. Machines of one ledger may run
concurrently on one thread.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from math import inf
from typing import TypeAlias, TypeVar

from attrs import define, field, frozen

from integration_sdk._http.retry import RetryPolicy
from integration_sdk._push.evidence import ListedPushes, Operation, Verdict
from integration_sdk._push.table import SendResult, may_own_unclaimed
from integration_sdk._store.row import DOUBTED, Intent, Lane, State


@frozen
class Commit:
    """Make these rows durable, all or none."""

    rows: tuple[Intent, ...]


@frozen
class Send:
    """Transmit the intent once, having made its SENDING row durable right before.

    While it waits for its turn it is not recorded as SENDING, so a crash leaves no doubt.
    """

    row: Intent


@frozen
class ListPushes:
    """List the company's pushes.

    known: The driver may stop once all of these keys have been seen; None for a snapshot, whose
        depth is up to the driver.
    old: Keys that are new to no intent; their operations are not needed. A key that is *known*
        but not *old* was there before some intents only, so its operation is needed in full.
    """

    company_id: str
    known: frozenset[str] | None = None
    old: frozenset[str] = frozenset()


@frozen
class ReadSingly:
    """Read these pushes one by one, because the list left out their ``data``."""

    company_id: str
    keys: tuple[str, ...]


@frozen
class FindOwners:
    """Ask the journal which of these keys belong to an intent."""

    keys: frozenset[str]


@frozen
class Sleep:
    """Wait at least this many seconds."""

    seconds: float


Effect: TypeAlias = Commit | Send | ListPushes | ReadSingly | FindOwners | Sleep
Report: TypeAlias = float | SendResult | ListedPushes | Sequence[Operation] | Collection[str] | None
_T = TypeVar("_T")
Machine: TypeAlias = Generator[Effect, Report, _T]


@frozen(kw_only=True)
class Policy:
    """Limits of retries and waits, and what the service and the caller promise. In seconds.

    exclusive: The caller promises that nobody but this journal writes to the lanes, nor did so
        recently enough for a lagging list to show it as new. Allows E1.
    refuses_with_503, path_names: From the dialect.
    replays: From the dialect: the service carries out only once what it receives under one
        idempotency key, so a create in doubt may be sent again. A journal may hold keys of
        another dialect.
    retry: Transmissions of one intent, after NOT_SENT, 429 and 503, and replays; all pauses
        begin at its ``throttled_base``.
    longest_pause: If the service asks for a longer pause, the intent is given up.
    replay_window: How long an idempotency key is relied upon. Assumed: answers are kept for
        90 minutes; a third is left for waits that turn out longer.
    first_search: Delay before a company with pushes in doubt is first listed.
    search_patience: Time that a list gets to show a push before its absence counts.
    """

    exclusive: bool = False
    refuses_with_503: bool = True
    path_names: Mapping[str, str] = field(factory=dict)
    replays: bool = True
    retry: RetryPolicy = field(factory=lambda: RetryPolicy(attempts=5))
    longest_pause: float = inf
    replay_window: float = 3600.0
    first_search: float = 0.5
    search_patience: float = 30.0

    def waits_for(self, result: SendResult) -> bool:
        """Whether the pause that the service asked for is no longer than `longest_pause`."""
        return (result.retry_after or 0.0) <= self.longest_pause


@define
class Ledger:
    """The unsettled intents that this process knows, and which of them claims which key.

    keeps_acknowledged: Whether final states of acknowledged pushes are recorded. Without a file
        they are not: an acknowledged push is forgotten here, and only the journal has its key.
    unrecorded: Outcomes that could not be written to disk, by intent: `catch_up` tries again;
        after a crash they are found out again.
    read: Final pushes read one by one for their echo, by key; kept while anything is in doubt.
    concluded: What the last listing suggested about each intent in doubt.
    to_repeat: AMBIGUOUS intents that `transmit` is about to send again. A listing may show their
        pushes, but cannot say that they have none.
    """

    keeps_acknowledged: bool = True
    _rows: dict[str, Intent] = field(factory=dict)
    _lanes: dict[Lane, dict[str, Intent]] = field(factory=dict)
    _claims: dict[str, str] = field(factory=dict)
    unrecorded: dict[str, Intent] = field(factory=dict)
    read: dict[str, Operation] = field(factory=dict)
    concluded: dict[str, Verdict] = field(factory=dict)
    to_repeat: set[str] = field(factory=set)

    def note(self, intent: Intent) -> None:
        """Replace the state of an intent, or forget one that needs no more attention."""
        self._forget(intent)
        if not (intent.is_settled or self._leaves_to_journal(intent)):
            self._keep(intent)
        if not self._lanes:
            self.read.clear()
            self.concluded.clear()

    def _leaves_to_journal(self, intent: Intent) -> bool:
        return intent.state is State.ACKED and not self.keeps_acknowledged

    def _keep(self, intent: Intent) -> None:
        self._rows[intent.id] = intent
        if intent.key:
            self._claims[intent.key] = intent.id
        if may_own_unclaimed(intent):
            self._lanes.setdefault(intent.lane, {})[intent.id] = intent

    def _forget(self, intent: Intent) -> None:
        before = self._rows.pop(intent.id, None)
        if before and before.key and self._claims.get(before.key) == intent.id:
            del self._claims[before.key]
        lane = self._lanes.get(intent.lane, {})
        if lane.pop(intent.id, None) and not lane:
            del self._lanes[intent.lane]

    def get(self, intent_id: str) -> Intent | None:
        """Return the current state of an intent; None if it is settled or unknown."""
        return self._rows.get(intent_id)

    def owner(self, key: str) -> str | None:
        """Return the unsettled intent that claims *key*."""
        return self._claims.get(key)

    def contenders(self, lane: Lane) -> dict[str, Intent]:
        """Return the lane's intents that may own an unclaimed push, by id."""
        return dict(self._lanes.get(lane, {}))

    def doubted(self, company_id: str | None = None) -> list[Intent]:
        """Return the intents in doubt, of one company or all."""
        lanes = [rows for lane, rows in self._lanes.items() if company_id in (None, lane[0])]
        return [one for rows in lanes for one in rows.values() if one.state in DOUBTED]

    def searched(self, company_id: str) -> list[Intent]:
        """Return the company's intents in doubt that only a listing can settle."""
        doubted = self.doubted(company_id)
        return [
            one for one in doubted if one.state is State.AMBIGUOUS and one.id not in self.to_repeat
        ]
