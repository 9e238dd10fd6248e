"""What became of pushes whose answers were lost: one search per company, and decisions.

A company with doubtful pushes is listed at growing intervals, until the evidence settles each. A
LOST push that no listing settles is in DOUBT once ``patience`` has passed: that is up to the
caller, and it is still looked for, rarely, because requests may arrive late and lists may lag.
Nothing here sends a push again, unless the caller lets us (``in_doubt="resend"``) and no list shows
it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from uuid import uuid4

from attrs import define, field

from integration_sdk._http import requests
from integration_sdk._push import outcomes
from integration_sdk._push.evidence import Judging, in_lane, may_resend
from integration_sdk._push.holder import BLOCK_LEFT, Holder
from integration_sdk._push.push import Company, Live, Push, about
from integration_sdk._push.table import DOUBTFUL, Event
from integration_sdk._store.journal import Journal
from integration_sdk._store.row import Evidence, Row, State, folded
from integration_sdk.errors import (
    ClientClosed,
    ConfigurationError,
    JournalError,
    StoreUnavailable,
    fresh_copy,
)
from integration_sdk.models import PushOperation, PushRequest, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

FIRST: Final = 0.5
"""Seconds before a company with a lost push is first listed, and between two listings at least."""
RARELY: Final = 30.0
"""Seconds of the first pause once all that is left is in DOUBT; each is twice as long."""
LONGEST: Final = 600.0
BUDGET: Final = ((5, 10.0), (10, 60.0))
"""Listings of a company in so many seconds, at most.

Twelve requests are promised for the first minute; the session may repeat one that was refused.
"""
READ_SINGLY: Final = 20
"""Pushes listed without ``data`` that are read one by one after a listing, at most."""
ELSEWHERE: Final = 1.0
"""Seconds between two looks at pushes that another worker holds and a caller here waits for."""
_NOT_YET: Final = {State.SENDING: "still being sent", State.LOST: "still being searched for"}


@define(eq=False)
class Search:
    """The searches of all companies, and what callers decide.

    Attributes:
        read: Final pushes that were read one by one for their echo, by key.
    """

    holder: Holder
    read: dict[str, PushOperation] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.holder.seek = self.seek

    def seek(self, company: Company) -> None:
        """Search for the company's doubtful pushes, until none is left."""
        if company.search is None and not self.holder.closing:
            company.search = self.holder.start(self._search(company))

    async def _search(self, company: Company) -> None:
        loop = asyncio.get_running_loop()
        pause, began, confirms = FIRST, loop.time(), False
        try:
            while company.doubtful:
                if await self._is_news(company, loop.time() + pause):
                    began = loop.time()  # it begins anew with each lost answer
                if self.holder.closing or not company.doubtful:
                    break
                await self._look(company)
                # What rests on a list that lacks something has to be seen twice.
                confirms = not confirms and any(
                    one.awaits_another for one in company.doubtful.values()
                )
                if not confirms:
                    await self._tell_doubts(company)
                lost = any(one.row.state is not State.DOUBT for one in company.doubtful.values())
                if lost:
                    usual = max(FIRST, min(2 * pause, self.holder.options.patience / 2))
                    usual = max(usual, (loop.time() - began) / 5)
                else:
                    usual = FIRST if confirms else max(RARELY, 2 * pause)
                pause = max(min(LONGEST, usual), self._budget(company))
        finally:
            company.search = None
            if not any(one.doubtful for one in self.holder.companies.values()):
                self.read.clear()

    async def _is_news(self, company: Company, at: float) -> bool:
        """Wait for the next listing, which news brings forward; return whether there was any."""
        is_news = False
        while not self.holder.closing:
            try:
                async with asyncio.timeout_at(at):
                    await company.news.wait()
            except TimeoutError:
                break
            company.news.clear()
            is_news = True
            at = min(at, asyncio.get_running_loop().time() + max(FIRST, self._budget(company)))
        return is_news

    def _budget(self, company: Company) -> float:
        """Return the seconds until the budget allows another listing; workers share it."""
        now, workers = asyncio.get_running_loop().time(), self.holder.polls.schedule.workers
        waits = [
            company.listed[-count] + span * workers - now
            for count, span in BUDGET
            if len(company.listed) >= count
        ]
        return max(0.0, *waits) if waits else 0.0

    async def _look(self, company: Company) -> None:
        """List the company's pushes once, and judge all that are doubtful."""
        holder, now = self.holder, asyncio.get_running_loop().time()
        lives = dict(company.doubtful)  # the listing may lack what is sent from here on
        asked = [live.row for live in lives.values()]
        company.listed.append(now)
        listing = await holder.wire.list_back_to(company.id, asked)
        judging = Judging(asked, listing, holder.wire.dialect, holder.options.exclusive)
        try:
            # After the listing, and in this order: whatever it shows was on record before.
            if holder.journal is not None:
                rivals = await holder.journal.unexplained(company.id)
                owned = await holder.journal.owners(judging.new)
                holder.let_go(lives, await holder.journal.rows(ids=lives))
            else:
                held = [one.row for one in holder.live.values()] + holder.buried
                rivals = [row for row in held if row.ghosts > 0 and row.company == company.id]
                owned = {key for key in judging.new if self.holder.owns(key)}
            free = {key: one for key, one in judging.new.items() if key not in owned}
            await self._read_mute(company, free)
            await self._judge(lives, judging, rivals, free, now)
        except StoreUnavailable as error:
            failed = "the search for pushes in doubt of company %s failed and will be retried: %s"
            logger.warning(failed, company.id, error)
        except JournalError as error:  # no result could be put on record
            holder.stop(error)
            for live in list(company.doubtful.values()):
                holder.leave(live, error)

    async def _judge(
        self,
        lives: dict[str, Live],
        judging: Judging,
        rivals: list[Row],
        free: dict[str, PushOperation],
        listed_at: float,
    ) -> None:
        holder = self.holder
        rows = [one.row for name, one in lives.items() if one.company.doubtful.get(name) is one]
        lost = [row.id for row in judging.asked if row.state is State.LOST]
        conclusions = judging.conclude(
            rows,
            rivals,
            free,
            before={name: live.finding for name, live in lives.items()},
            waited={name: listed_at - lives[name].lost_at for name in lost},
            patience=holder.options.patience,
        )
        for row, finding, event, facts in conclusions:
            live = lives[row.id]
            live.finding = finding
            if event is not None and await holder.step(live, event, judged=row, **facts):
                if event is Event.FOUND:
                    self._found(live)
                elif row.state is State.LOST:
                    doubt = outcomes.in_doubt(self.holder.request_of(live.row), live.row).error
                    logger.warning("%s", doubt, extra=about(live.row))
            elif live.row.state is State.QUEUED and live.company.doubtful.get(row.id) is live:
                del live.company.doubtful[row.id]
                holder.queue(live)

    def _found(self, live: Live) -> None:
        row = live.row
        logger.info("%s was found: it is push %s", row, row.key, extra=about(row))
        self.holder.open(live, None)

    async def _read_mute(self, company: Company, found: dict[str, PushOperation]) -> None:
        """Read final pushes that were listed without their echo, one by one and each only once."""
        mute = [key for key, one in found.items() if one.is_final and not one.data]
        unread = tuple(key for key in mute if key not in self.read)[:READ_SINGLY]
        for one in await self.holder.wire.read_singly(company.id, unread) if unread else ():
            self.read[one.push_operation_key] = one
        found.update((key, self.read[key]) for key in mute if key in self.read)

    async def _tell_doubts(self, company: Company) -> None:
        """Give whoever waits for a push in DOUBT that outcome; or send it again, if we may."""
        holder, attempts = self.holder, self.holder.retry.attempts
        for live in list(company.doubtful.values()):
            row = live.row
            waits = row.state is State.DOUBT and any(push.outcome is None for push in live.pushes)
            resends = waits and holder.options.in_doubt == "resend" and not holder.stopped
            if resends and may_resend(row, live.finding, transmissions=attempts):
                await self._resend_missing(live, row)
            elif waits:
                holder.report(row, live.pushes)

    async def _resend_missing(self, live: Live, row: Row) -> None:
        """Send a push once more that no list shows; it keeps its reference, and has one outcome."""
        try:
            if await self._step(live, Event.RESENT, "resend", judged=row):
                missing = "the list of pushes does not show %s: it is sent again"
                logger.warning(missing, row, extra=about(row))
                self._send_again(live)
        except JournalError as error:
            logger.warning("%s is not sent again: %s", row, error, extra=about(row))
            self.holder.report(row, live.pushes)

    # Decisions

    async def decide(self, intent: str, decision: str | None, bind: str | None) -> Push | None:
        """Carry out a decision to its end, even if the caller is cancelled."""
        task = asyncio.create_task(self._decide(intent, decision, bind))
        self.holder.tasks.add(task)
        task.add_done_callback(self._decided)
        return await asyncio.shield(task)

    def _decided(self, task: asyncio.Task[Push | None]) -> None:
        self.holder.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a decision failed: %s", error)  # its caller may have gone

    async def _decide(self, intent: str, decision: str | None, bind: str | None) -> Push | None:
        holder, live = self.holder, await self._in_doubt(intent)
        found = None
        if bind is not None:
            found = await self._check_key(live.row, bind)
            live = await self._in_doubt(intent)  # still
        holder.begin()  # what has refused all may have passed
        if decision == "resend" and holder.stopped:
            raise fresh_copy(holder.stopped)
        facts: dict[str, Any] = {"key": bind, "evidence": Evidence.CALLER} if bind else {}
        event = Event.FOUND if bind else Event.RESENT if decision == "resend" else Event.ABANDONED
        request = live.pushes[0].request if live.pushes else holder.request_of(live.row)
        push = Push(request, intent=intent)
        holder.enter(push)  # the block waits for it
        try:
            live = await self._record(live, event, decision or "bind", **facts)
        except BaseException:
            holder.forget(push)
            raise
        if event is Event.ABANDONED:
            holder.forget(push)
            holder.go_on(live)
            return None
        live.pushes = [one for one in (*live.pushes, push) if one.outcome is None]
        if bind:
            live.operation = found  # it may have ended long ago: no poll has to find that out
            self._found(live)
        else:
            self._send_again(live)
        return push

    async def _record(self, live: Live, event: Event, decision: str, **facts: Any) -> Live:
        """Record a decision, if the push is still in doubt by then."""
        while not await self._step(live, event, decision, judged=(row := live.row), **facts):
            live = await self._in_doubt(row.id)  # or it says what has become of it
            if live.row is row:
                raise ConfigurationError(
                    f"push {facts.get('key')} already belongs to another intent"
                )
            if live.row.payload_hash != row.payload_hash:
                raise ConfigurationError(
                    f"the record of intent {row.id} was corrected by another worker; look at it "
                    "again, then decide"
                )
        return live

    async def _step(
        self, live: Live, event: Event, decision: str, judged: Row, **facts: Any
    ) -> bool:
        if event is Event.RESENT and live.row.idempotency_key is not None:
            facts["idempotency_key"] = str(uuid4())
        return await self.holder.step(live, event, judged=judged, decision=decision, **facts)

    def _send_again(self, live: Live) -> None:
        live.pushes = [one for one in live.pushes if one.outcome is None]
        live.is_own, live.call, live.finding = True, None, None
        for push in live.pushes:
            push._end_wait()  # it begins anew
        live.tries, live.sent_at = 0, None
        live.company.doubtful.pop(live.row.id, None)
        self.holder.queue(live)

    async def _in_doubt(self, intent: str) -> Live:
        """Return the push of *intent*, about which the caller may decide.

        Raises:
            ConfigurationError: It is not in doubt, or not any more.
        """
        holder = self.holder
        if holder.closing:
            raise ClientClosed(BLOCK_LEFT)
        live = holder.live.get(intent)
        if live is None and holder.journal is not None and holder.journal.shared:
            for row in await holder.journal.rows(ids=[intent]):
                live = await self._take(row, holder.journal)
        if live is None or live.row.state is not State.DOUBT:
            state = "settled or unknown"
            if live is not None:
                state = _NOT_YET.get(live.row.state, live.row.state)
            raise ConfigurationError(
                f"intent {intent} is {state}; you can decide only about a push that is IN_DOUBT"
            )
        return live

    async def _take(self, row: Row, journal: Journal) -> Live | None:
        """Hold a push in DOUBT that another worker holds; who decides about it goes on with it."""
        holder, live = self.holder, Live(row, self.holder.company(row.company), [])
        if row.state is not State.DOUBT:
            return live
        if await holder.step(live, Event.UNSETTLED, holder=journal.holder):
            if (claimed := holder.live.get(row.id)) is not None:  # meanwhile, before that
                claimed.row = live.row
            else:
                holder.hold(live)
                holder.go_on(live)
        return holder.live.get(row.id)

    async def _check_key(self, row: Row, key: str) -> PushOperation:
        """Return the push *key*; reject a mistyped one before the decision is recorded."""
        requests.segment("bind", key)
        problem, numbers = None, self.holder.polls.numbers  # it is for the caller
        if folded(key) in row.earlier_keys:
            problem = "is of an earlier attempt of this push"
        elif self.holder.owns(key):
            problem = "already belongs to another intent"
        elif not (found := await self.holder.wire.read_singly(row.company, [key], numbers=numbers)):
            problem = "cannot be read at the service"
        elif not in_lane(found[0], row.lane, self.holder.wire.dialect):
            problem = "is of another connection or data type"
        if problem is not None:
            raise ConfigurationError(f"push {key} {problem}; nothing was recorded")
        return found[0]

    async def give_back(self, intent: str) -> PushRequest:
        """Free the reference of a push that timed out, and return its request."""
        holder = self.holder
        found = await holder.journal.rows(ids=[intent]) if holder.journal else []
        if not found or not outcomes.has_ended(found[0], PushStatus.TIMED_OUT) or found[0].ghosts:
            raise ConfigurationError(
                f"record= needs a push that timed out; intent {intent} is not one in this journal"
            )
        live = Live(found[0], holder.company(found[0].company), [])
        await holder.step(live, Event.FREED, decision="resend")
        return holder.request_of(found[0])


@define(eq=False)
class Workers:
    """What earlier runs and other workers have left, hold, and are told."""

    holder: Holder

    def __attrs_post_init__(self) -> None:
        self.holder.beat = self.beat

    async def open(self) -> None:
        """Take over what earlier runs have left; in a database, stay alive from now on."""
        holder = self.holder
        if holder.journal is None:
            return
        if holder.journal.shared:
            holder.journal.listen(self._heard)
            await self.beat()
            holder.keeper = holder.start(self._keep(holder.journal))
        else:
            await self._take_over(holder.journal)
        doubts = sum(live.row.state in DOUBTFUL for live in holder.live.values())
        if doubts:
            left = "pushes that earlier runs left in doubt: %d; searching for them, see `in_doubt`"
            logger.warning(left, doubts)

    async def _keep(self, journal: Journal) -> None:
        """Stay alive, also while the last answers are waited for."""
        holder = self.holder
        holder.polls.strangers.add(journal.tell)
        try:
            while True:
                await asyncio.sleep(ELSEWHERE if holder.elsewhere else journal.beat_every)
                try:
                    if journal.silent_for >= journal.beat_every:
                        await self.beat()
                    if holder.elsewhere:
                        await self._look_elsewhere(journal)
                except JournalError as error:
                    logger.warning("other workers' pushes could not be read: %s", error)
        finally:
            holder.polls.strangers.discard(journal.tell)

    async def beat(self) -> None:
        """Tell the other workers that this one is alive, and take over from those that are not."""
        holder, journal = self.holder, self.holder.journal
        if journal is None:
            return
        holder.polls.schedule.workers = await journal.beat()
        if journal.reconnected:
            held = await journal.held()  # also what was written, or claimed, without an answer
            if not (holder.stopped or holder.closing):
                known = holder.live.keys() | holder.given_up
                self._adopt([row for row in held if row.id not in known])
            await journal.restore([one.row for one in holder.live.values() if one.row.version >= 0])
        await self._take_over(journal)
        doubts = {one.row.id: one for one in holder.live.values() if one.row.state is State.DOUBT}
        if doubts:  # what was decided elsewhere is told here too, long before the next listing
            holder.let_go(doubts, await journal.rows(ids=doubts))

    async def _take_over(self, journal: Journal) -> None:
        holder = self.holder
        while not (holder.stopped or holder.closing) and (rows := await journal.claim()):
            self._adopt(rows)

    def _adopt(self, rows: list[Row]) -> None:
        """Go on with rows that are ours by now, for the callers here who wait for them first."""
        holder = self.holder
        for row in rows:
            for row_id, record in [one for one in holder.elsewhere if one[0] == row.id]:
                holder.join(row.as_of(record), holder.elsewhere.pop((row_id, record)))
            holder.adopt(row)

    async def _look_elsewhere(self, journal: Journal) -> None:
        """Look at pushes that another worker holds and callers here wait for."""
        elsewhere = self.holder.elsewhere
        found = {row.id: row for row in await journal.rows(ids=[row_id for row_id, _ in elsewhere])}
        for row_id, record in [one for one in elsewhere if one[0] in found]:
            row = found[row_id].as_of(record)
            if row.is_done or row.state is State.DOUBT:
                self.holder.join(row, elsewhere.pop((row_id, record)))
            elif row.key is not None:
                for push in [one for one in elsewhere[row_id, record] if one.key is None]:
                    push._wake(outcomes.recorded_operation(row))
                    self.holder.start_wait(row, push)

    def _heard(self, key: str) -> None:
        if folded(key) in self.holder.keys:
            self.holder.polls.notify(key)
