"""One simulated history: a caller, a process that is killed and started again, and the judge.

The process drives the machines of the protocol with a policy as thin as the coordinator's.
Every effect may be the last thing it does, before or after it is done.
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Any

from attrs import Factory, define, evolve, field
from integration_sdk._push.effects import (
    Commit,
    FindOwners,
    Ledger,
    ListPushes,
    Machine,
    Policy,
    ReadSingly,
    Send,
    Sleep,
)

from integration_sdk._http.requests import Phase
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._push import effects, protocol, reconcile
from integration_sdk._push.table import DECIDABLE, DUTY, Duty, SendResult, new_intent
from integration_sdk._store import KeyJournal
from integration_sdk._store.row import Intent, Lane, Snapshot, State
from integration_sdk.errors import JournalError
from tests.protocol_world import Disk, Push, Service, Weather, done

COMPANY = "company"


class Crash(Exception):
    """The process is gone."""


class Broken(Exception):
    """A mistake of the driver's: it stops in the midst of a machine."""


@define(eq=False)
class History:
    """One seeded run. `run` returns what is wrong; an empty list is what we want."""

    seed: int
    weather: Weather
    dice: Random = field(init=False)
    service: Service = field(init=False)
    disk: Disk = field(init=False)
    ledger: Ledger = field(init=False)
    policy: Policy = field(init=False)
    records: list[tuple[str, Lane, bytes]] = Factory(list)
    states: Counter[str] = Factory(Counter)
    links: Counter[str] = Factory(Counter)
    crashes: int = 0
    resends: Counter[str] = Factory(Counter)
    _ticket: Iterator[int] = Factory(count)
    _life: int = 0
    _events: list[tuple[float, int, int, Callable[[], None]]] = Factory(list)
    _busy: set[str] = Factory(set)
    _disk_is_broken: bool = False

    def __attrs_post_init__(self) -> None:
        self.dice = Random(self.seed)
        if self.weather.fileless:  # nothing to be taken over, and no disk to refuse
            self.weather = evolve(self.weather, crash=0.0, disk=0.0)
        weather = self.weather
        self.service = Service(self.dice, weather)
        self.disk = Disk(KeyJournal() if weather.fileless else None)
        self.ledger = self._new_ledger()
        self.policy = Policy(
            exclusive=weather.exclusive, search_patience=30.0, retry=RetryPolicy(attempts=4)
        )
        lanes = [Lane(COMPANY, "books", "invoices"), Lane(COMPANY, "books", "bills")]
        for number in range(self.dice.randrange(1, 6)):
            twin = self.records and self.dice.random() < weather.twins
            named = (
                self.records[-1][2]
                if twin
                else json.dumps(
                    {
                        "invoiceNumber": f"INV-{number}",
                        "amount": 10.5 + number,
                        "lines": [{"net": 1}],
                    }
                ).encode()
            )
            lane = self.records[-1][1] if twin else self.dice.choice(lanes)
            self.records.append((f"ref-{number}", lane, named))
        for number in range(self.dice.randrange(4)):
            old = self.service.create(
                self.dice.choice(lanes), {"invoiceNumber": f"OLD-{number}"}, None
            )
            old.visible_at = 0.0
            old.order -= 3600.0 * self.dice.random()  # long before the first snapshot
        self._strangers = [(self.dice.random() * 120, lane) for lane in self._foreign_lanes()]

    _strangers: list[tuple[float, Lane]] = Factory(list)

    def _foreign_lanes(self) -> list[Lane]:
        lanes = [Lane(COMPANY, "shop", "invoices"), Lane(COMPANY, "books", "customers")]
        if not self.weather.exclusive:
            lanes += [Lane(COMPANY, "books", "invoices"), Lane(COMPANY, "books", "bills")]
        return [self.dice.choice(lanes) for _ in range(self.weather.strangers)]

    # The world turns.

    def _after(self, seconds: float, event: Callable[[], None], *, outside: bool = False) -> None:
        life = -1 if outside else self._life
        heapq.heappush(self._events, (self.service.now + seconds, next(self._ticket), life, event))

    def run(self) -> list[str]:
        for at, lane in self._strangers:
            self._after(at, partial(self._stranger, lane), outside=True)
        self._after(0.0, self._start)
        self._turn(until=900.0)
        self._clear_up()
        if not self.weather.fileless:
            self._kill()
            self._after(0.0, self._start)
        self._turn(until=self.service.now + 1500.0)
        return self.disk.violations + self._judge()

    def _turn(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, life, event = heapq.heappop(self._events)
            self.service.now = max(at, self.service.now)
            if life not in (-1, self._life):
                continue
            try:
                event()
            except Crash:
                self.crashes += 1
                self._kill()
                self._after(self.dice.choice([0.1, 20.0, 100.0]), self._start)
        self.service.now = until

    def _new_ledger(self) -> Ledger:
        return Ledger(keeps_acknowledged=not self.weather.fileless)

    def _kill(self) -> None:
        self._life += 1
        self.ledger = self._new_ledger()
        self._busy.clear()
        self._disk_is_broken = False

    def _clear_up(self) -> None:
        """The weather clears: requests on their way arrive, nothing new goes wrong."""
        fair = evolve(
            self.weather,
            trouble=0.0,
            crash=0.0,
            disk=0.0,
            unlisted=0.0,
            cut=0.0,
            lag=0,
            breaks=0.0,
            omits=0.0,
            repeats=0.0,
            shuffles=0.0,
        )
        self.weather = self.service.weather = fair

    def _stranger(self, lane: Lane) -> None:
        record: dict[str, object] = {"invoiceNumber": f"X-{self.dice.random()}", "amount": 10.5}
        self.service.create(lane, record, None)

    # The process: a driver of machines, and a policy as thin as the coordinator's.

    def _start(self) -> None:
        self._drive(self._main())

    def _main(self) -> Machine[None]:
        rows = done(self.disk.journal.claim())
        found = yield from reconcile.recover(self.ledger, rows)
        self._drive(self._poll())
        snapshot = yield from protocol.take_snapshot(COMPANY, newest=self.weather.newest)
        queued = [row for row in found if row.state is State.QUEUED]
        for intent in (*queued, *self._not_yet_submitted()):
            yield Sleep(self.dice.choice([0.0, 0.0, 1.0, 30.0]))
            self._drive(self._push(intent, snapshot))

    def _not_yet_submitted(self) -> list[Intent]:
        return [
            new_intent(
                lane,
                payload,
                id=f"{reference}-{self._life}",
                reference=reference,
                natural_key="invoiceNumber" if self.weather.natural else None,
                idempotency_key=f"idem-{reference}" if self.weather.idempotent else None,
            )
            for reference, lane, payload in self.records
            if not done(self.disk.journal.rows(reference=reference))
        ]

    def _push(self, intent: Intent, snapshot: Snapshot | None) -> Machine[None]:
        if self.dice.random() < 0.2 and self.ledger.get(intent.id) is None:
            yield Commit((intent,))  # on record before its turn, as what is sent again is
            self.ledger.note(intent)
        transmission = protocol.transmit(
            self.ledger,
            intent,
            snapshot,
            policy=self.policy,
            chance=self.dice.random,
            new_key=lambda: f"idem-{self.dice.getrandbits(64):x}",
            search=self._search,
        )
        try:
            sent = yield from transmission
        except Broken:
            sent = yield from protocol.break_off(self.ledger, intent)
        if self._is_wrong(sent):  # on record or not: the caller is told
            self.disk.violations.append(f"wrong link: {sent.id} as it was told")
        if sent.state in DECIDABLE:
            self.disk.violations.append(f"given up too early: {sent.id} was still to be sent again")
        if sent.state is State.AMBIGUOUS:
            self._reconcile_soon()

    def _search(self, company_id: str) -> Machine[bool]:
        yield from reconcile.search_again(self.ledger, company_id, policy=self.policy)
        return True

    def _reconcile_soon(self) -> None:
        if "reconcile" not in self._busy:
            self._busy.add("reconcile")
            self._drive(self._reconcile())

    def _reconcile(self) -> Machine[None]:
        yield from reconcile.reconcile(self.ledger, COMPANY, policy=self.policy)
        self._busy.discard("reconcile")
        if self.ledger.searched(COMPANY):
            self._reconcile_soon()

    def _poll(self) -> Machine[None]:
        wait = 3.0
        while not self._is_over():
            yield Sleep(wait)
            wait = min(wait * 1.5, 100.0)
            try:
                yield from self._poll_once()
            except JournalError:
                continue  # the disk is full: there is a next time

    def _poll_once(self) -> Machine[None]:
        yield from protocol.catch_up(self.ledger)
        if self.ledger.searched(COMPANY):
            self._reconcile_soon()
        for row in self._pollable():
            read: Any = yield ReadSingly(COMPANY, (row.key or "",))
            for one in read:
                yield from protocol.settle(self.ledger, [(row.id, one, None)])
        if any(row.state in DECIDABLE for row in self.ledger.doubted()):
            yield from reconcile.search_again(self.ledger, COMPANY, policy=self.policy)
            if self.service.now < 1500:
                yield from self._decide()

    def _pollable(self) -> list[Intent]:
        rows = done(self.disk.journal.claim())
        known = [self.ledger.get(row.id) for row in rows]
        return [row for row in known if row and row.key and DUTY[row.state] is Duty.POLL]

    def _is_over(self) -> bool:
        rows = done(self.disk.journal.claim())
        return not rows and self.service.now > 900 and not self._not_yet_submitted()

    def _decide(self) -> Machine[None]:
        for row in self.ledger.doubted():
            if row.state not in DECIDABLE or self.dice.random() > 0.03:
                continue
            own = [one for one in self.service.pushes if one.of == row.id]
            if own and self.dice.random() < 0.7:
                yield from reconcile.bind(self.ledger, row.id, own[0].push_operation_key)
            elif self.dice.random() < 0.5:
                self.resends[row.reference or ""] += 1
                new_id = f"{row.id}-again"
                key = f"{row.idempotency_key}-again" if row.idempotency_key else None
                again = yield from reconcile.resend(
                    self.ledger, row.id, new_id=new_id, idempotency_key=key
                )
                snapshot = yield from protocol.take_snapshot(COMPANY, newest=self.weather.newest)
                self._drive(self._push(again, snapshot))
            else:
                yield from reconcile.abandon(self.ledger, row.id)

    def _drive(self, machine: Machine[Any]) -> None:
        self._resume(machine, lambda: next(machine))

    def _resume(self, machine: Machine[Any], step: Callable[[], effects.Effect]) -> None:
        try:
            effect = step()
        except StopIteration:
            return
        except JournalError:  # the disk refused what had to be written: this machine ends
            return
        self._perform(machine, effect)

    def _perform(self, machine: Machine[Any], effect: effects.Effect) -> None:
        self._maybe_crash()
        life = self._life

        def report(value: Any) -> None:
            self._maybe_crash()
            if self._life == life:
                self._resume(machine, lambda: machine.send(value))

        match effect:
            case Send():
                self._wait_for_turn(effect.row, self._maybe_broken(machine, report))
            case Commit():
                self._after(0.01, lambda: self._commit(machine, effect, report))
            case Sleep():
                wait = effect.seconds * (1 + self.dice.random() * 0.3)
                self._after(wait, lambda: report(self.service.now))
            case ListPushes():
                # A snapshot that was cut relies on the service's order, hence on its clock.
                is_snapshot = effect.known is None
                cut = not (is_snapshot and self.service.weather.steps)
                listing = self.service.listing(may_be_cut=cut, old=effect.old)
                self._after(self.dice.random() * 3, lambda: report(listing))
            case FindOwners():
                self._after(0.01, lambda: self._owners(machine, effect, report))
            case ReadSingly():
                found = [self.service.read(key) for key in effect.keys]
                self._after(0.1, lambda: report([one for one in found if one]))

    def _maybe_broken(
        self, machine: Machine[Any], report: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        if not self.dice.random() < self.weather.breaks:
            return report
        return lambda _: self._resume(machine, lambda: machine.throw(Broken()))

    def _maybe_crash(self) -> None:
        if self.crashes < 8 and self.dice.random() < self.weather.crash:
            raise Crash

    def _wait_for_turn(self, row: Intent, report: Callable[[Any], None]) -> None:
        """The gate may be shut for long, or for longer than the driver waits."""
        began, wait = self.service.now, self.dice.choice([0.0, 0.0, 0.0, 5.0, 60.0])

        def turn() -> None:
            turned_away = wait and self.dice.random() < self.weather.trouble / 4
            if turned_away or self._write((row,)):
                report(SendResult(Phase.NEVER_LEFT, at=began, cause="no turn, or no row"))
            else:
                self._maybe_crash()
                self._send(row, report)

        self._after(wait + 0.01, turn)

    def _commit(self, machine: Machine[Any], effect: Commit, report: Callable[[Any], None]) -> None:
        refused = self._write(effect.rows)
        if refused is None:
            report(None)
        else:
            self._resume(machine, lambda: machine.throw(refused))

    def _write(self, rows: tuple[Intent, ...]) -> JournalError | None:
        refused: JournalError | None = None
        if self._disk_is_broken or self.dice.random() < self.weather.disk:
            refused = JournalError("disk full")
        # Refused and yet on disk: a failed fsync. The journal takes nothing more after that.
        lies = refused is not None and not self._disk_is_broken and self.dice.random() < 0.2
        self._disk_is_broken = self._disk_is_broken or lies
        if refused is None or lies:
            try:
                self.disk.commit(rows)
            except JournalError as error:
                refused = error
        return refused

    def _owners(
        self, machine: Machine[Any], effect: FindOwners, report: Callable[[Any], None]
    ) -> None:
        if self.dice.random() < self.weather.disk:
            self._resume(machine, lambda: machine.throw(JournalError("unreadable")))
        else:
            report(self.disk.owners(effect.keys))

    def _send(self, intent: Intent, report: Callable[[Any], None]) -> None:
        self.disk.watch_send(intent)
        began, life = self.service.now, self._life
        seen = {row.key for row in done(self.disk.journal.rows()) if row.key}
        seen |= intent.snapshot.keys if intent.snapshot else set()

        def step(happens: Callable[[], SendResult | None]) -> None:
            self.service.seen = seen  # by this one; others are on their way
            result = happens()
            if result is not None and life == self._life:
                report(evolve(result, at=began))

        for seconds, happens in self.service.receive(intent):
            self._after(seconds, partial(step, happens), outside=True)

    # The truth is compared with the journal.

    def _judge(self) -> list[str]:
        rows = {row.id: row for row in done(self.disk.journal.rows())}
        self.states.update(str(row.state) for row in rows.values())
        self.links.update(str(row.evidence) for row in rows.values() if row.key)
        return [
            *self._double_sends(),
            *(f"wrong link: {row.id}" for row in rows.values() if self._is_wrong(row)),
            *self._losses(rows),
            *(f"unexamined: {row.id}" for row in rows.values() if self._is_unexamined(row)),
        ]

    def _double_sends(self) -> list[str]:
        made = Counter(one.of.split("-")[1] for one in self.service.pushes if one.of)
        allowed = {number: 1 + self.resends[f"ref-{number}"] for number in made}
        return [f"double send: ref-{one}" for one, times in made.items() if times > allowed[one]]

    def _is_wrong(self, row: Intent) -> bool:
        if row.key is None:
            return False
        push = self.service.read(row.key)
        return push is None or push.of != row.id

    def _losses(self, rows: dict[str, Intent]) -> Iterator[str]:
        for push in self.service.pushes:
            row = rows.get(push.of or "")
            if push.of is not None and (row is None or not self._accounts_for(row, push)):
                yield f"silent loss: {push.of} ({row.state if row else 'no row'})"
        for reference, _, _ in self.records:
            if not any(row.reference == reference for row in rows.values()):
                yield f"silent loss: {reference} was never taken"

    def _is_unexamined(self, row: Intent) -> bool:
        """Without a file nobody puts on record how an acknowledged push ended."""
        known = row.state is State.ACKED and not self.ledger.keeps_acknowledged
        return row.state in _UNEXAMINED and not known

    @staticmethod
    def _accounts_for(row: Intent, push: Push) -> bool:
        if row.key is not None:
            return True  # a wrong one is counted as such
        surfaced = row.state in DECIDABLE and push.push_operation_key in row.candidates
        return surfaced or row.state is State.DECIDED


_UNEXAMINED = set(State) - {State.FINAL, State.NOT_SENT, State.REJECTED, State.DECIDED, *DECIDABLE}
