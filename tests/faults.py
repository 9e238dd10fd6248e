"""Faults that the tests must catch: ``python -m tests.faults [NAME...]`` sows and reports them.

A fault replaces a text that occurs once in a file of the package by another one. The runner copies
the project to a scratch folder, sows one fault there, and runs the named tests, of which at least
one must fail. Without names all are sown. Those of the protocol of pushes are in
``test_simulator``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LONGEST: Final = 300.0
"""Seconds after which tests that hang count as failed."""


class Fault(NamedTuple):
    """One fault.

    file: Below the package.
    old, new: The text that is replaced, and by which.
    tests: Names of the test files that must catch it, without ``test_`` and ``.py``, by spaces.
    """

    file: str
    old: str
    new: str
    tests: str

    def sow(self, root: Path) -> None:
        """Replace the text below *root*."""
        path = root / "integration_sdk" / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.file} has {text.count(self.old)} of {self.old!r}"
        path.write_text(text.replace(self.old, self.new))


FAULTS: Final[dict[str, Fault]] = {
    # How often, and when, a request is sent again
    "one attempt too many": Fault(
        "_http/retry.py", "attempts < policy.attempts", "attempts <= policy.attempts", "retry"
    ),
    "patience with a gateway's 504": Fault(
        "_http/retry.py", " and row.scope is not Scope.GATEWAY", "", "retry list_retries"
    ),
    "Retry-After is no minimum": Fault(
        "_http/retry.py", "return max(floor, jitter(limit))", "return jitter(limit)", "retry"
    ),
    "pauses do not grow": Fault(
        "_http/retry.py", "min(number, MOST_DOUBLINGS)", "min(0, MOST_DOUBLINGS)", "retry"
    ),
    "a budget without an end": Fault(
        "_http/retry.py", "if self.tokens < REPETITION:", "if self.tokens < 0:", "retry"
    ),
    "a budget that overflows": Fault(
        "_http/retry.py", "min(FULL_BUDGET, self.tokens + tokens)", "self.tokens + tokens", "retry"
    ),
    # What an error says
    "a failed write is not told to be in doubt": Fault(
        "_http/responses.py", "in_doubt=in_doubt, **facts)", "**facts)", "errors judgement"
    ),
    "a 503 that proves nothing is not told to be in doubt": Fault(
        "_http/responses.py", "        refuses_with_503=request.refuses_with_503,\n", "", "errors"
    ),
    "a lost write is not told to be in doubt": Fault(
        "_http/transport.py",
        "in_doubt = request.safety is Safety.WRITE",
        "in_doubt = False",
        "errors session_network",
    ),
    "a plan for a company that does not exist": Fault(
        "cli/_plan.py", "if error.status not in NOT_NOW and", "if not error.status and", "cli_plan"
    ),
    # What is read into users' classes
    "pydantic reads Decimals through floats": Fault(
        "_records/pydantic_models.py",
        'if "decimal" not in kinds and',
        "if",
        "pydantic",
    ),
    "a union reads otherwise beside a Decimal": Fault(
        "_records/pydantic_models.py",
        "if not _NATIVE.issuperset(types):",
        "if not types:",
        "pydantic",
    ),
    "an Any field keeps pydantic's helper": Fault(
        "_records/pydantic_models.py",
        "if type(value) is ExactFloat:",
        "if value is None:",
        "pydantic",
    ),
    # What a status means
    "a write is sent again after 500": Fault(
        "_http/statuses.py",
        "500: Row(_AGAIN, _IN_DOUBT,",
        "500: Row(_AGAIN, _AGAIN,",
        "judgement session_calls coordinator",
    ),
    "a read gives up after 502": Fault(
        "_http/statuses.py",
        "502: Row(_AGAIN, _IN_DOUBT,",
        "502: Row(_GIVE_UP, _IN_DOUBT,",
        "judgement session_calls retry",
    ),
    "a 404 is not final": Fault(
        "_http/statuses.py",
        "404: Row(_REFUSED, _REFUSED,",
        "404: Row(_GIVE_UP, _REFUSED,",
        "judgement session_calls retry",
    ),
    "a proxy's refusal is believed": Fault(
        "_http/statuses.py", "(doubted or not is_own)", "doubted", "judgement session_calls"
    ),
    "a dialect's doubt of 503 is ignored": Fault(
        "_http/statuses.py",
        "status == OFFLINE and not refuses_with_503",
        "False",
        "judgement session_calls",
    ),
    "a lost write is sent again": Fault(
        "_http/statuses.py",
        "if phase is Phase.NEVER_LEFT or safety is Safety.READ:",
        "if True:",
        "judgement session_calls session_phases",
    ),
    # Gates, windows and rates
    "a shorter Retry-After replaces a longer one": Fault(
        "_http/limits.py",
        "self.opens_at = max(self.opens_at, self._named)",
        "self.opens_at = max(0.0 if floor else self.opens_at, now + floor)",
        "throttle_crowd",
    ),
    "an old answer opens the gate": Fault(
        "_http/limits.py",
        "if self.closed_by is None or sent_at <= self.closed_at:",
        "if self.closed_by is None:",
        "throttle_crowd",
    ),
    "two probes at once": Fault(
        "_http/limits.py", "self.opens_at = now + PROBE_PATIENCE", "pass", "throttle_crowd"
    ),
    "a cancelled probe holds up the next": Fault(
        "_http/limits.py",
        "self.opens_at = max(now, self._named)",
        "pass",
        "throttle throttle_crowd",
    ),
    "no jitter behind Retry-After": Fault(
        "_http/limits.py",
        "spread = jitter(SPREAD * floor)",
        "spread = 0.0",
        "throttle",
    ),
    "no place for urgent calls": Fault(
        "_http/limits.py",
        "kept = 0 if urgent or self.size < SMALLEST_WITH_SPARE else 1",
        "kept = 0",
        "throttle_crowd",
    ),
    "a window that never grows": Fault(
        "_http/limits.py",
        "min(self.limit, self.size + 1 / (self.patience * self.size))",
        "self.size",
        "throttle throttle_crowd",
    ),
    "a window that falls below half": Fault(
        "_http/limits.py",
        "self._floor = max(1.0, used / 2)",
        "self._floor = 1.0",
        "throttle throttle_crowd",
    ),
    "a rate that falls to a third": Fault(
        "_http/limits.py", "before / 2, CAUTION", "before / 3, CAUTION", "throttle_crowd"
    ),
    "a rate that never grows": Fault(
        "_http/limits.py",
        "self.learnt += max(LEAST_STEP, self.learnt * self._step)",
        "pass",
        "throttle_crowd limiter_worlds",
    ),
    "a rate that was lowered in vain is kept": Fault(
        "_http/limits.py",
        "return self._in_vain > MOST_IN_VAIN",
        "return False",
        "throttle_crowd limiter_worlds",
    ),
    "a search leaves older doubts untold": Fault(
        "_push/search.py",
        "        else:\n            self._tell_doubts(company_id)\n",
        "",
        "in_doubt_resend",
    ),
    "what is found counts for those judged later only": Fault(
        "_push/evidence.py", "more = len(left) < len(judged)", "more = False", "in_doubt_resend"
    ),
    "a taken company's doubts are not swept": Fault(
        "_push/search.py",
        "self.sweep(row.company)  # an earlier run's word is old",
        "company = self._of(row.company)",
        "in_doubt_resend",
    ),
    "a search leaves a first word unconfirmed": Fault(
        "_push/search.py",
        "        elif self._awaits_another(company_id):\n"
        "            self._start_sweep(company_id, FIRST)\n",
        "",
        "in_doubt_resend",
    ),
    "a refused company slows everybody": Fault(
        "_http/limiter.py",
        "since = limits.answered_at if is_certain else self._answered_at",
        "since = self._answered_at",
        "coordinator_refused",
    ),
    "no fair turn": Fault(
        "_http/limiter.py",
        "self._turns_taken % FAIR_TURN == FAIR_TURN - 1",
        "False",
        "throttle throttle_crowd limiter_worlds",
    ),
    "a company that was refused probes first": Fault(
        "_http/limiter.py",
        "key=lambda one: (one.company in self._suspects, one.turns",
        "key=lambda one: (one.turns",
        "throttle throttle_crowd limiter_worlds",
    ),
    "whoever remains may be the account": Fault(
        "_http/limiter.py",
        "of_company = alone if left is None else left > 0",
        "of_company = alone",
        "throttle throttle_crowd limiter_worlds",
    ),
    "companies are kept for ever": Fault(
        "_http/limiter.py",
        "if not (limits.is_unused and limits.gate.is_open)",
        "if True",
        "throttle throttle_crowd",
    ),
    "a burst at the opening": Fault(
        "_http/limiter.py",
        "self._next_at = now + self._jitter(LONGEST_STAGGER)",
        "pass",
        "throttle throttle_crowd limiter_worlds",
    ),
    # What headers say
    "a Unix time is a number of seconds": Fault(
        "_http/hints.py",
        "        seconds -= now\n",
        "        pass\n",
        "retry requests",
    ),
    "a date is compared with our clock": Fault(
        "_http/hints.py",
        "now = received_at if told is None else told",
        "now = received_at",
        "retry requests",
    ),
    # Lists
    "repair takes a changed item for known": Fault(
        "_list/repair.py",
        "return before is not None and (before == content or self._contents_vary)",
        "return before is not None",
        "repair repair_moves",
    ),
    "repair pages do not overlap": Fault(
        "_list/repair.py",
        "begin, most = max(reached - self._overlap, 0)",
        "begin, most = max(reached, 0)",
        "repair repair_moves",
    ),
    "repair hands out twice": Fault(
        "_list/repair.py",
        "if index >= first and key not in seen and",
        "if index >= first and",
        "repair",
    ),
    "repair pages do not grow": Fault(
        "_list/repair.py",
        "while _end(wanted) <= reached and size < most:",
        "while False:",
        "repair repair_moves",
    ),
    "a silent cap is not seen": Fault(
        "_list/repair.py", "return not self._filtered\n", "return False\n", "repair repair_moves"
    ),
    "a page fetched before a move counts": Fault(
        "_list/repair.py",
        "if self._ahead and len(keys) - len(new)",
        "if False and len(keys) - len(new)",
        "repair repair_moves",
    ),
    "drift far from the border is missed": Fault(
        "_list/drift.py", "NEAR: Final = 32", "NEAR: Final = 1", "drift_seen"
    ),
    "a total that changes is no drift": Fault(
        "_list/drift.py",
        "if total is not None and page.total is not None and total != page.total:",
        "if False:",
        "drift_seen",
    ),
    "a list that ends early is whole": Fault(
        "_list/drift.py",
        "if total is not None and done != total:",
        "if False:",
        "drift_seen pager_oddities",
    ),
    "a page that loops is read again": Fault(
        "_list/walk.py",
        "if backwards or mark in self._pages_seen:",
        "if backwards:",
        "paging pager pager_oddities pager_mishaps",
    ),
    "another page is taken": Fault(
        "_list/walk.py",
        "if None not in {wanted.number, number} and wanted.number != number:",
        "if False:",
        "paging pager pager_oddities pager_mishaps",
    ),
    "memory without a bound": Fault(
        "_list/walk.py",
        "affordable = (self.max_bytes - self._held) // max(self._body, 1)",
        "affordable = 100",
        "paging pager",
    ),
    "pages beyond the limit are fetched": Fault(
        "_list/walk.py",
        "return min(self.total, following.offset + self.limit - self.offered)",
        "return self.total",
        "paging pager",
    ),
    "a cursor of another list": Fault(
        "_list/cursor.py", "if token.of != _fingerprint(request):", "if False:", "cursor"
    ),
    "a damaged cursor": Fault(
        "_list/cursor.py",
        "if token is None or cursor != _seal(payload):",
        "if token is None:",
        "cursor",
    ),
    "pages that lacked rows are counted": Fault(
        "_list/cursor.py", "    if before != token.done:\n", "    if False:\n", "cursor pager"
    ),
    # The table and the evidence of pushes
    "a cached answer is our push": Fault(
        "_push/table.py", " and result.key and not key_is_known:", " and result.key:", "push_table"
    ),
    "a replay that is refused was not sent": Fault(
        "_push/table.py",
        "case Meaning.REFUSED | Meaning.AGAIN if not replay:",
        "case Meaning.REFUSED | Meaning.AGAIN:",
        "push_table in_doubt_resend",
    ),
    "a push that was being sent is sent again": Fault(
        "_push/table.py",
        "_E.LOST: _S.LOST,\n            _E.RESTARTED: _S.LOST,",
        "_E.LOST: _S.LOST,\n            _E.RESTARTED: _S.QUEUED,",
        "push_table coordinator_journal",
    ),
    "a listing that contradicts itself counts": Fault(
        "_push/evidence.py",
        "if snapshot is None or not listing.is_consistent:",
        "if snapshot is None:",
        "evidence",
    ),
    "a listing that lacks old keys counts": Fault(
        "_push/evidence.py",
        "snapshot.keys.issubset(listing.keys)",
        "True",
        "evidence",
    ),
    "one of several pushes is ours": Fault(
        "_push/evidence.py",
        "return bool(push & self._contested)",
        "return False",
        "evidence",
    ),
    "a push older than the snapshot is new": Fault(
        "_push/evidence.py",
        "if latest is not None and requested <= latest:",
        "if False:",
        "evidence",
    ),
    "sent again for ever": Fault(
        "_push/evidence.py",
        "return sent < transmissions",
        "return True",
        "evidence in_doubt_resend",
    ),
    # Polls and searches
    "a poll heeds no Retry-After": Fault(
        "_push/poller.py",
        "self._failed(poll, error, answer.retry_after)",
        "self._failed(poll, error, None)",
        "poller",
    ),
    "another push's answer to a poll is believed": Fault(
        "_push/poller.py", "if operation.key != key:", "if not operation.key:", "poller"
    ),
    "a final state is replaced": Fault(
        "_push/poller.py",
        "self._finished.setdefault(operation.push_operation_key, operation)",
        "self._finished[operation.push_operation_key] = operation",
        "poller",
    ),
    "waiters share an error": Fault(
        "_push/poller.py",
        "follower.lost(push.key, fresh_copy(error))",
        "follower.lost(push.key, error)",
        "poller",
    ),
    "a list that is refused is asked for again": Fault(
        "_push/schedule.py", "poll.company.list_after = now + NO_LIST", "pass", "poller"
    ),
    "polls that fail are as frequent as ever": Fault(
        "_push/schedule.py", "company.failures += 1", "pass", "poller"
    ),
    "a search reads two pages": Fault(
        "_push/wire.py", "else (PAGE, MOST_PAGES)", "else (PAGE, 2)", "poller"
    ),
    "part of a list proves that a push is absent": Fault(
        "_push/wire.py",
        "whole=False, at=listed_at)",
        "whole=True, at=listed_at)",
        "poller",
    ),
    "a doubt of months is searched for as often as a new one": Fault(
        "_push/search.py", "max(pause, RARER * (now - self.since))", "pause", "searches"
    ),
    # Stores
    "an old version overwrites a new one": Fault(
        "_store/rows.py", "old.version + 1 != new.version", "False", "store_rows"
    ),
    "one key, two rows in memory": Fault(
        "_store/memory.py",
        "if row.key in claimed or self._is_owned(row.key):",
        "if False:",
        "store_rows",
    ),
    "a settled key is forgotten": Fault(
        "_store/memory.py",
        "            self._settled[row.key] = None",
        "            pass",
        "store_rows",
    ),
    "one key, two rows in a file": Fault(
        "_store/database.py",
        "UNIQUE (key, scope)",
        "UNIQUE (key, scope, id)",
        "store_rows store_postgres",
    ),
    "a write of less than all rows": Fault(
        "_store/sqlite.py",
        "            if updated < len(some):",
        "            if False:",
        "store_rows",
    ),
    "a company that was let go is acted for": Fault(
        "_push/dispatcher.py",
        """        if not self.companies.of(row.company).is_ours:
            self.companies.hear(row, fresher)
            return
        is_followed""",
        "        is_followed",
        "in_doubt_resend",
    ),
    "an older lease ends the present one": Fault(
        "_push/companies.py",
        "        if not (d.stopped or d.tasks.closing.is_set()):",
        "        if False:",
        "in_doubt_resend",
    ),
    "the end of a block can be cancelled": Fault(
        "_push/coordinator.py",
        "await to_the_end(asyncio.ensure_future(self._end_and_return_store(d)))",
        "await self._end_and_return_store(d)",
        "coordinator_leaving",
    ),
    "stuck pushes say how long others take": Fault(
        "_push/schedule.py",
        "        if not push.is_old and started - push.born >= OLD:",
        "        if False:",
        "polling_figures",
    ),
    "pushes of an hour ago say how long others take": Fault(
        "_push/schedule.py",
        "        if not self._open:\n",
        "        if False:\n",
        "polling_figures",
    ),
    "a lease is asked for at each notification": Fault(
        "_store/postgres.py",
        "now() + POLL if self._hears else 0.0",
        "0.0",
        "store_postgres",
    ),
    "a block of a store closes it under another": Fault(
        "_store/store.py",
        "        if not self._blocks:  # else",
        "        if True:  # else",
        "store",
    ),
    "a forked process keeps a file locked": Fault(
        "_system.py",
        "    _watch_forks()\n",
        "",
        "store_sqlite",
    ),
    "a file is left to a loop that has ended": Fault(
        "_store/store.py",
        "            if self._file is not None and self._file.is_left:",
        "            if False:",
        "store",
    ),
    "a store is used in two loops": Fault(
        "_store/store.py",
        "        if before is loop:\n",
        "        if True:\n",
        "store",
    ),
    "a full disk is told for each push": Fault(
        "_push/sending.py",
        "level = logging.DEBUG if d.stopped else",
        "level = logging.DEBUG if False else",
        "coordinator_journal",
    ),
    "a push that is followed is followed again": Fault(
        "_push/dispatcher.py",
        "        if is_followed:  # or",
        "        if False:  # or",
        "references",
    ),
    "an older version takes the place of a later one": Fault(
        "_push/dispatcher.py",
        """        if held is not None and held.version > row.version:
            return
""",
        "",
        "in_doubt_resend",
    ),
    "what stopped a coordinator never passes": Fault(
        "_push/dispatcher.py",
        "if outcomes.may_pass(self.stopped) and",
        "if False and",
        "coordinator_passing",
    ),
    "one company's refusal stops single pushes of others": Fault(
        "_push/sending.py",
        "is_too_long = bool(d.runs) and",
        "is_too_long =",
        "coordinator_passing",
    ),
    "who is stopped keeps its companies": Fault(
        "_push/companies.py",
        "            await d.store.release()\n",
        "",
        "coordinator_passing",
    ),
    "a database that was away is not asked again": Fault(
        "_push/companies.py",
        "return isinstance(error, StoreUnavailable) and",
        "return False and",
        "coordinator_passing",
    ),
    "a database that is away stops all for good": Fault(
        "_push/dispatcher.py",
        "        if isinstance(error, StoreUnavailable):\n            self.end_runs(error)",
        "        if False:\n            self.end_runs(error)",
        "coordinator_passing",
    ),
    "a part whose answer was lost is written twice": Fault(
        "_pull/postgres.py",
        "            if await self._has_state(db, unit, after):\n",
        "            if False:\n",
        "pull_databases",
    ),
    "a holder comes back with what it gave back": Fault(
        "_store/postgres.py",
        "            self.holder = _new_holder()\n",
        "",
        "store_documents",
    ),
    "anyone may take a lease": Fault(
        "_store/postgres.py",
        """WHERE lease.holder = excluded.holder OR NOT {_IS_ALIVE.format("lease")}""",
        """WHERE {_IS_ALIVE.format("lease")} OR TRUE""",
        "store_postgres store_workers",
    ),
    "a hard link is opened": Fault(
        "_store/place.py", "if found.st_nlink > 1:", "if False:", "store_sqlite"
    ),
    "what is no file is opened": Fault(
        "_store/place.py", "if not stat.S_ISREG(found.st_mode):", "if False:", "store_sqlite"
    ),
    "a journal that others may read": Fault(
        "_store/place.py", "os.fchmod(descriptor, 0o600)", "pass", "store_sqlite"
    ),
    "another file is overwritten": Fault(
        "_store/place.py", "if head and head != _MAGIC:", "if False:", "store_sqlite"
    ),
    "a slot is used however late": Fault(
        "_store/rate.py", "if _now() <= at + EXPIRES and at", "if at", "store_rates shared_rate"
    ),
    "a pause voids no slot": Fault(
        "_store/rate.py", " and at >= self._void_before:", ":", "store_rates shared_rate"
    ),
    "a pause without an end": Fault(
        "_store/rate.py", "seconds = min(seconds, LONGEST_PAUSE)", "pass", "store_rates shared_rate"
    ),
    "a shorter pause replaces a longer one": Fault(
        "_store/rate.py",
        "rate.paused_until = max(rate.paused_until, _now() + seconds)",
        "rate.paused_until = _now() + seconds",
        "store_rates shared_rate",
    ),
    "the error of a rate is kept from callers": Fault(
        "_store/rate.py", "slot.set_exception(_copy_of(error))", "slot.cancel()", "store_rates"
    ),
    # Pulls
    "a cancelled pull keeps its folder": Fault(
        "_pull/files.py",
        "await to_the_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments)))",
        "await asyncio.to_thread(work, *arguments)",
        "pull",
    ),
    "two pulls into one folder": Fault(
        "_pull/files.py",
        "                lock(self._lock)\n",
        "                pass\n",
        "pull",
    ),
    "parts that were not committed stay": Fault(
        "_pull/files.py",
        "if not state.first <= number < state.parts:",
        "if False:",
        "pull pull_crashes",
    ),
    "a part that is gone is not missed": Fault(
        "_pull/files.py", "if number not in held and not full:", "if False:", "pull"
    ),
    "another process's unit is read again": Fault(
        "_pull/state.py",
        "return unit.state.done and since >= self.run",
        "return False",
        "pull_databases",
    ),
    "a unit is claimed before what may fail": Fault(
        "_pull/state.py",
        "        if document is None:\n",
        "        await self._read(IDENTITY)\n        if document is None:\n",
        "pull_together",
    ),
    "who is overtaken says so instead of waiting": Fault(
        "_pull/units.py",
        "        except Fenced:\n            return None\n",
        "",
        "pull_databases",
    ),
    "what others give back waits for the longest unit": Fault(
        "_pull/pull.py",
        "left.append((pair, now() + SECONDS_BETWEEN_CLAIMS))",
        "left.append((pair, now() + 1e6))",
        "pull_together",
    ),
    "two pulls of a process take units from each other": Fault(
        "_store/postgres.py",
        "        if name in self._claimed:\n            return None\n",
        "",
        "store_documents pull_together",
    ),
    "who thaws removes what others have made": Fault(
        "_pull/files.py", "if token > unit.document.token:", "if False:", "pull_together"
    ),
    "a store belongs to two pulls": Fault(
        "_pull/pull.py",
        "if owner is None and not here:",
        "if False:",
        "pull_together",
    ),
    "who is cancelled looks for another unit": Fault(
        "_pull/pull.py", "goes_on = False", "pass", "pull_together"
    ),
    "a pull that has just begun is nobody's": Fault(
        "_pull/files.py", "if MARKER in names:", "if False:", "pull_together"
    ),
    "an audit believes the receipt that ended last": Fault(
        "_pull/audit.py", "key=lambda one: one.held.run", "key=lambda one: 0", "pull_together"
    ),
    "a database that is away is asked once": Fault(
        "_pull/postgres.py",
        "if not is_away(error) or now() >= failed + _PATIENCE:",
        "if True:",
        "pull_databases",
    ),
    "a unit is replaced again though its answer was lost": Fault(
        "_pull/postgres.py",
        "if state.live not in {0, state.generation}:",
        "if unit.state.live not in {0, unit.state.generation}:",
        "pull_databases",
    ),
    "a new column holds up all readers": Fault(
        "_pull/postgres.py", "lock_timeout = '{_HOLD_UP}s'", "lock_timeout = 0", "pull_databases"
    ),
    "a column is added to one table only": Fault(
        "_pull/postgres.py",
        "async with db.transaction():  # to both tables, or none",
        "if True:",
        "pull_databases",
    ),
    "a full database stops one unit": Fault(
        "_pull/postgres.py",
        "raise OSError(errno.ENOSPC, str(error)) from error",
        "raise PullError(str(error)) from error",
        "pull_databases",
    ),
    "columns that others have added are not known": Fault(
        "_pull/postgres.py",
        "_create(db, data_type)\n        await",
        "_create(db, data_type)\n            await",
        "pull_databases",
    ),
    "a claim that is cancelled may be made later": Fault(
        "_store/postgres.py",
        "found = await to_the_end(asyncio.ensure_future(self._claim(name)))",
        "found = await self._claim(name)",
        "store_documents",
    ),
    "a DuckDB file has two writers in one process": Fault(
        "_pull/duckdb.py",
        "os.getpid() if self.target in _WRITING else None",
        "None",
        "pull_databases",
    ),
    "a stamp of the same second is old": Fault(
        "_pull/unit.py", "if stamp[:19] < begin and", "if stamp[:19] <= begin and", "pull changes"
    ),
    # Notifications
    "an old signature counts": Fault(
        "_notifications.py",
        "if sent is None or abs(now - sent) > tolerance:",
        "if sent is None:",
        "notifications",
    ),
    "a dot in the id": Fault("_notifications.py", ' or "." in message_id:', ":", "notifications"),
    "a duplicate counts twice": Fault(
        "_notifications.py", "self._seen[message_id] = None", "pass", "notifications"
    ),
    "ids are kept for ever": Fault(
        "_notifications.py", "if len(self._seen) > self.remembers:", "if False:", "notifications"
    ),
    "an unsigned id silences a push": Fault(
        "_notifications.py",
        'headers["webhook-id"] if signed else notification.id',
        'headers.get("webhook-id", notification.id)',
        "notifications webhooks",
    ),
    "a body without a bound": Fault(
        "webhooks.py", "if len(body) > self._max_body:", "if False:", "webhooks"
    ),
    "an empty secret": Fault(
        "webhooks.py",
        "isinstance(value, str) and value for",
        "isinstance(value, str) for",
        "webhooks",
    ),
    # The sandbox
    "an older state of a pulled record wins": Fault(
        "sandbox/_pulled.py", "if state[:2] >= held[:2]:", "if True:", "sandbox_pulled"
    ),
    "names that only some pulled records have are refused": Fault(
        "sandbox/_pulled.py", ", alike=False", "", "sandbox_pulled"
    ),
    "DELETE of some faults ends all": Fault(
        "sandbox/_faults.py", "if text and {", "if not text and {", "sandbox_page"
    ),
    "a 429 is kept for its idempotency key": Fault(
        "sandbox/_account.py",
        " and entry.answer.status != 429",
        "",
        "sandbox_faults",
    ),
    "a key is kept for another request": Fault(
        "sandbox/_account.py",
        "if known.request != request:",
        "if False:",
        "sandbox_published sandbox_pushing",
    ),
    "a quota that is never renewed": Fault(
        "sandbox/_account.py",
        "if self.day != now // DAY:",
        "if self.day < 0:",
        "sandbox_published sandbox_itself sandbox_document",
    ),
}


def caught(fault: Fault, *, scratch: Path) -> bool:
    """Return whether the tests fail with *fault*, in a copy below *scratch*."""
    root = scratch / "project"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("integration_sdk", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, root / name)
    fault.sow(root)
    paths = [f"tests/test_{name}.py" for name in fault.tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            [*command, *paths],
            cwd=root,
            env=environment,
            timeout=LONGEST,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    assert done.returncode in {0, 1}, done.stdout.decode() + done.stderr.decode()
    return done.returncode == 1


def survivors(names: list[str]) -> Iterator[str]:
    """Yield the names of faults that no test catches."""
    with TemporaryDirectory() as scratch:
        for number, name in enumerate(names, 1):
            is_caught = caught(FAULTS[name], scratch=Path(scratch))
            said = "caught" if is_caught else "SURVIVED"
            sys.stdout.write(f"{number}/{len(names)} {said}: {name}\n")
            sys.stdout.flush()
            if not is_caught:
                yield name


def main(names: list[str]) -> int:
    """Sow the faults *names*, or all; return the exit code: 1 if one survives."""
    chosen = names or list(FAULTS)
    if unknown := sorted(set(chosen) - set(FAULTS)):
        sys.stderr.write(f"no such faults: {', '.join(unknown)}\n")
        return 2
    left = list(survivors(chosen))
    sys.stdout.write(f"{len(chosen) - len(left)} of {len(chosen)} faults were caught\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
