"""Service, weather and disk of the simulated histories: what is true, and what is heard of it.

The service makes pushes, loses, delays, refuses and mangles requests and answers, lists with a
lag, cut short or not at all, echoes or does not, keeps answers by idempotency key, and its clock
steps. The disk is the journal that survives the process, and watches what is written to it.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from random import Random
from typing import Any, NamedTuple, TypeVar

from attrs import Factory, define, evolve, frozen

from integration_sdk._http.requests import Phase
from integration_sdk._push.evidence import ListedPushes
from integration_sdk._push.table import SendResult
from integration_sdk._store import KeyJournal
from integration_sdk._store.row import Intent, KeyClaimed, Lane, State
from tests.memory_journal import MemoryJournal

T = TypeVar("T")
KEPT_FOR = 90 * 60.0
"""Seconds for which an idempotent service keeps its answers."""


BEGAN = datetime(2024, 1, 31, tzinfo=UTC)


@frozen(kw_only=True)
class Weather:
    """What one history is up against; chances are per effect.

    omits, repeats: Chance of each row to be left out of a listing, or to be in it twice.
    shuffles: Chance that a listing is in no order.
    breaks: The driver fails, and nothing else of the process: what it heard is lost.
    fileless: The caller wants no journal file: one process, of which nothing is left after it.
    """

    lag: float = 0.0
    echo: str = "full"
    trouble: float = 0.5
    strangers: int = 0
    steps: bool = False
    crash: float = 0.0
    disk: float = 0.0
    unlisted: float = 0.0
    cut: float = 0.0
    exclusive: bool = False
    idempotent: bool = False
    natural: bool = True
    twins: float = 0.3
    newest: int | None = None
    fileless: bool = False
    breaks: float = 0.0
    omits: float = 0.0
    repeats: float = 0.0
    shuffles: float = 0.0

    @classmethod
    def roll(cls, dice: Random) -> "Weather":
        steps = dice.random() < 0.3
        return cls(
            lag=dice.choice([0.0, 0.0, 5.0, 60.0]),
            echo=dice.choice(["full", "full", "single", "none", "rewritten"]),
            trouble=dice.choice([0.3, 0.6, 0.9]),
            strangers=dice.choice([0, 2, 5]),
            steps=steps,
            crash=dice.choice([0.0, 0.03, 0.1]),
            disk=dice.choice([0.0, 0.0, 0.05]),
            unlisted=dice.choice([0.0, 0.0, 0.3]),
            cut=dice.choice([0.0, 0.3]),
            exclusive=dice.random() < 0.4,
            idempotent=dice.random() < 0.3,
            natural=dice.random() < 0.5,
            newest=None if steps else dice.choice([None, None, 2]),
            fileless=dice.random() < 0.15,
            breaks=dice.choice([0.0, 0.0, 0.05]),
        )


@define(eq=False)
class Push:
    """A push at the service. *of*: whose it truly is; None for a stranger's."""

    push_operation_key: str
    data_connection_id: str | None
    data_type: str | None
    of: str | None
    record: dict[str, object]
    order: float
    visible_at: float
    final_at: float
    ends: str
    echo: str
    status: str = "Pending"
    data: dict[str, object] = Factory(dict)

    @property
    def is_final(self) -> bool:
        return self.status != "Pending"

    @cached_property
    def requested_on_utc(self) -> datetime:
        """By the service's own clock."""
        return BEGAN + timedelta(seconds=self.order)

    @cached_property
    def key_alone(self) -> "Push":
        return evolve(self, data_connection_id=None, data_type=None)

    @cached_property
    def _ended(self) -> "Push":
        return evolve(self, status=self.ends)

    @cached_property
    def _echoed(self) -> "Push":
        if self.ends != "Success" or self.echo == "none":
            return self._ended
        changed: dict[str, object] = {"amount": 0} if self.echo == "rewritten" else {}
        echo = {**self.record, **changed, "id": self.push_operation_key}
        return evolve(self, status=self.ends, data=echo)

    def at(self, now: float, *, with_data: bool) -> "Push":
        if now < self.final_at:
            return self
        return self._echoed if with_data else self._ended


class Fate(NamedTuple):
    """What becomes of one transmission: does it arrive, and what is heard of it."""

    name: str
    arrives: float
    answer: Callable[["Service", Push | None], SendResult]


ERROR_BODY = {"correlationId": "c", "statusCode": 0, "error": "refused"}


def _heard(status: int, body: dict[str, object] | None) -> SendResult:
    return SendResult(Phase.ANSWERED, status=status, body=body)


def _lost(service: "Service", push: Push | None) -> SendResult:
    return SendResult(Phase.MAY_HAVE_LEFT, cause="reset")


def _acked(service: "Service", push: Push | None) -> SendResult:
    assert push is not None
    return _heard(service.dice.choice([200, 202]), {"pushOperationKey": push.push_operation_key})


def _stale(service: "Service", push: Push | None) -> SendResult:
    """A cache answers with a key we have seen: listed before we sent, or on record."""
    others = service.seen - {push.push_operation_key if push else ""}
    key = service.dice.choice(sorted(others)) if others else ""
    return _heard(200, {"pushOperationKey": key})


def _status(*statuses: int, body: dict[str, object] | None) -> Callable[..., SendResult]:
    return lambda service, push: _heard(service.dice.choice(statuses), body)


def _maintenance(service: "Service", push: Push | None) -> SendResult:
    """A proxy asks for a longer pause than lists are searched for."""
    return SendResult(Phase.ANSWERED, status=503, retry_after=service.dice.choice([60.0, 120.0]))


TROUBLES = (
    Fate("never left", 0.0, lambda service, push: SendResult(Phase.NEVER_LEFT, cause="refused")),
    Fate("throttled", 0.0, _status(429, 503, body=ERROR_BODY)),
    Fate("refused", 0.0, _status(400, 401, 403, 404, 409, 422, body=ERROR_BODY)),
    Fate("proxy's 4xx", 0.5, _status(400, 404, 413, 429, 503, body=None)),
    Fate("500", 0.5, _status(500, body=ERROR_BODY)),
    Fate("gateway", 0.5, _status(502, 504, body=None)),
    Fate("maintenance", 0.5, _maintenance),
    Fate("408", 0.5, _status(408, body=ERROR_BODY)),
    Fate("redirect", 0.5, _status(302, 307, body=None)),
    Fate("lost answer", 1.0, _lost),
    Fate("lost request", 0.0, _lost),
    Fate("late request", 1.0, _lost),
    Fate("truncated", 1.0, _status(200, body=None)),
    Fate("keyless", 0.5, _status(200, body={})),
    Fate("another's key", 0.5, _stale),
)
FAIR = Fate("acked", 1.0, _acked)


@define(eq=False)
class Service:
    """The truth: which pushes exist, and for whom."""

    dice: Random
    weather: Weather
    now: float = 0.0
    clock: float = 0.0
    pushes: list[Push] = Factory(list)
    kept: dict[str, tuple[float, SendResult | None, Push | None]] = Factory(dict)
    fates: Counter[str] = Factory(Counter)
    seen: set[str] = Factory(set)

    def create(self, lane: Lane, record: dict[str, object], of: str | None) -> Push:
        if self.weather.steps and self.dice.random() < 0.3:
            self.clock += self.dice.choice([-7200.0, -60.0, 3600.0])
        push = Push(
            push_operation_key=f"key-{len(self.pushes)}",
            data_connection_id=lane.connection_id,
            data_type=lane.data_type,
            of=of,
            record=record,
            order=self.now + self.clock,
            visible_at=self.now + self.dice.random() * self.weather.lag,
            final_at=self.now + self.dice.choice([0.0, 5.0, 40.0, 300.0]),
            ends=self.dice.choice(["Success", "Success", "Success", "Failed"]),
            echo=self.weather.echo,
        )
        self.pushes.append(push)
        return push

    def receive(self, intent: Intent) -> Iterator[tuple[float, Callable[[], SendResult | None]]]:
        """One transmission: steps to run so many seconds from now; one of them answers."""
        fate = self.dice.choice(TROUBLES) if self.dice.random() < self.weather.trouble else FAIR
        self.fates[fate.name] += 1
        if fate.name == "late request":
            yield 10.0, lambda: _lost(self, None)
            yield self.dice.choice([11.0, 60.0, 200.0]), lambda: self._arrive(intent, None)
        elif self.dice.random() < fate.arrives:
            yield self.dice.random() * 5, lambda: self._arrive(intent, fate)
        else:
            yield self.dice.random() * 5, lambda: self._keep(intent, fate.answer(self, None), fate)

    def _keep(self, intent: Intent, answer: SendResult, fate: Fate) -> SendResult:
        """An idempotent service keeps what it said itself, 429 excepted."""
        if intent.idempotency_key and fate.name == "refused":
            kept = self._kept(intent)
            if kept is not None:
                return kept[1] or answer
            self.kept[intent.idempotency_key] = (self.now, answer, None)
        return answer

    def _kept(self, intent: Intent) -> tuple[float, SendResult | None, Push | None] | None:
        kept = self.kept.get(intent.idempotency_key or "")
        return kept if kept and self.now - kept[0] < KEPT_FOR else None

    def _arrive(self, intent: Intent, fate: Fate | None) -> SendResult | None:
        kept = self._kept(intent)
        if kept is not None:
            if fate is None:
                return None
            if fate is not FAIR and fate.name != "500":  # spoilt on its way back
                return fate.answer(self, kept[2])
            return kept[1] or (_acked(self, kept[2]) if kept[2] else _heard(409, ERROR_BODY))
        record = json.loads(intent.payload or b"{}")
        push = self.create(intent.lane, record, intent.id)
        answer = fate.answer(self, push) if fate else None
        if intent.idempotency_key:
            own = answer if fate is not None and fate.name == "500" else None
            self.kept[intent.idempotency_key] = (self.now, own, push)
        return answer

    def listing(
        self, *, may_be_cut: bool = True, old: frozenset[str] = frozenset()
    ) -> ListedPushes | None:
        """What the list shows; of what is *old* a thrifty driver reads the key alone."""
        if self.dice.random() < self.weather.unlisted:
            return None
        at = int((BEGAN + timedelta(seconds=self.now + self.clock)).timestamp())
        now, with_data = self.now, self.weather.echo in ("full", "rewritten")
        seen = sorted((one for one in self.pushes if one.visible_at <= now), key=_newest_first)
        shown = [
            one.key_alone if one.push_operation_key in old else one.at(now, with_data=with_data)
            for one in seen
        ]
        shown = self._disorder(shown)
        if may_be_cut and self.dice.random() < self.weather.cut:
            return ListedPushes(shown[: self.dice.randrange(len(shown) + 1)], whole=False, at=at)
        return ListedPushes(shown, whole=True, at=at)

    def _disorder(self, shown: list[Push]) -> list[Push]:
        """The list as it is not documented: rows left out, twice, or anywhere."""
        weather, dice = self.weather, self.dice
        if weather.omits:
            shown = [one for one in shown if dice.random() >= weather.omits]
        if weather.repeats:
            again = [one for one in shown if dice.random() < weather.repeats]
            for one in again:
                shown.insert(dice.randrange(len(shown) + 1), one)
        if weather.shuffles and dice.random() < weather.shuffles:
            dice.shuffle(shown)
        return shown

    def read(self, key: str) -> Push | None:
        for one in self.pushes:
            if one.push_operation_key == key:
                return one.at(self.now, with_data=True)
        return None


def _newest_first(push: Push) -> float:
    return -push.order


def done(awaitable: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise RuntimeError("the memory journal waited")


@define(eq=False)
class Disk:
    """The journal as it survives the process, watched.

    keys: What stands in for it where there is no file; then *journal* is the judge's alone.
    """

    keys: KeyJournal | None = None
    journal: MemoryJournal = Factory(MemoryJournal)
    finals: dict[str, Intent] = Factory(dict)
    violations: list[str] = Factory(list)
    sent: set[tuple[str, int]] = Factory(set)

    def commit(self, rows: tuple[Intent, ...]) -> None:
        if self.keys is not None:
            done(self.keys.commit(rows))
        try:
            done(self.journal.commit(rows))
        except KeyClaimed as error:
            if self.keys is None:
                raise
            self.violations.append(f"wrong link: {error}")
        for row in rows:
            before = self.finals.get(row.id)
            if before and (before.key, before.status) != (row.key, row.status):
                self.violations.append(f"final changed: {row.id}")
            if row.state is State.FINAL:
                self.finals[row.id] = row

    def owners(self, keys: Collection[str]) -> Collection[str]:
        return set(done((self.keys or self.journal).owners(keys)))

    def watch_send(self, intent: Intent) -> None:
        """No byte without a SENDING row of its own on disk."""
        row = self.journal._rows.get(intent.id)
        if row is None or (row.state, row.attempts) != (State.SENDING, intent.attempts):
            self.violations.append(f"sent without a row: {intent.id}")
        if (intent.id, intent.attempts) in self.sent:
            self.violations.append(f"row used twice: {intent.id}")
        self.sent.add((intent.id, intent.attempts))
