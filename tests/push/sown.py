"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "what is found counts for those judged later only": Fault(
        "_push/evidence.py",
        "more = len(left) < len(judged)",
        "more = False",
        "in_doubt_resend",
        "Judging.conclude",
    ),
    "a push that was being sent is sent again": Fault(
        "_push/table.py",
        "{\n            _E.LATER: _S.QUEUED,\n            _E.REFUSED: _S.REFUSED,\n            _E.ANSWERED: _S.OPEN,\n            _E.LOST: _S.LOST,\n            _E.RESTARTED: _S.LOST,\n        }",
        "{\n            _E.LATER: _S.QUEUED,\n            _E.REFUSED: _S.REFUSED,\n            _E.ANSWERED: _S.OPEN,\n            _E.LOST: _S.LOST,\n            _E.RESTARTED: _S.QUEUED,\n        }",
        "push_table coordinator_journal",
        "",
    ),
    "a listing that contradicts itself counts": Fault(
        "_push/evidence.py",
        "if snapshot is None or not listing.is_consistent:\n        return False",
        "if snapshot is None:\n        return False",
        "evidence",
        "reaches_back",
    ),
    "a listing that lacks old keys counts": Fault(
        "_push/evidence.py",
        "snapshot.keys.issubset(listing.keys)",
        "True",
        "evidence",
        "reaches_back",
    ),
    "one of several pushes is ours": Fault(
        "_push/evidence.py",
        "return bool(push & self._contested)",
        "return False",
        "evidence",
        "View.is_contested",
    ),
    "a push older than the snapshot is new": Fault(
        "_push/evidence.py",
        "if latest is not None and requested <= latest:\n        return True",
        "if False:\n        return True",
        "evidence",
        "_is_old",
    ),
    "sent again for ever": Fault(
        "_push/evidence.py",
        "return sent < transmissions",
        "return True",
        "evidence in_doubt_resend",
        "may_resend",
    ),
    "a poll heeds no Retry-After": Fault(
        "_push/poller.py",
        "self._failed(poll, error, answer.retry_after)",
        "self._failed(poll, error, None)",
        "poller",
        "Poller._not_read",
    ),
    "another push's answer to a poll is believed": Fault(
        "_push/poller.py",
        'if operation.key != key:\n            raise MalformedResponse(\n                f"asked for push {key}, but got {operation.key}, as from a cache"\n            )',
        'if not operation.key:\n            raise MalformedResponse(\n                f"asked for push {key}, but got {operation.key}, as from a cache"\n            )',
        "poller",
        "Poller._read_own",
    ),
    "a final state is replaced": Fault(
        "_push/poller.py",
        "self._finished.setdefault(operation.push_operation_key, operation)",
        "self._finished[operation.push_operation_key] = operation",
        "poller",
        "Poller.remember",
    ),
    "waiters share an error": Fault(
        "_push/poller.py",
        "follower.lost(push.key, fresh_copy(error))",
        "follower.lost(push.key, error)",
        "poller",
        "_tell_lost",
    ),
    "a list that is refused is asked for again": Fault(
        "_push/schedule.py",
        "poll.company.list_after = now + NO_LIST",
        "pass",
        "poller",
        "Schedule.unlistable",
    ),
    "polls that fail are as frequent as ever": Fault(
        "_push/schedule.py", "company.failures += 1", "pass", "poller", "Schedule.failed"
    ),
    "a search reads two pages": Fault(
        "_push/wire.py",
        "(SNAPSHOT, 1) if known is None else (PAGE, MOST_PAGES)",
        "(SNAPSHOT, 1) if known is None else (PAGE, 2)",
        "poller",
        "Wire._list",
    ),
    "part of a list proves that a push is absent": Fault(
        "_push/wire.py",
        "ListedPushes(tuple(found), whole=False, at=listed_at)",
        "ListedPushes(tuple(found), whole=True, at=listed_at)",
        "poller",
        "Wire._list",
    ),
    "a doubt of months is searched for as often as a new one": Fault(
        "_push/search.py",
        "max(pause, RARER * (now - self.since))",
        "pause",
        "searches",
        "_Company.next_sweep",
    ),
    "the end of a block can be cancelled": Fault(
        "_push/coordinator.py",
        "await to_the_end(asyncio.ensure_future(self._end_and_return_store(d)))",
        "await self._end_and_return_store(d)",
        "coordinator_leaving",
        "Coordinator._end",
    ),
    "a full disk is told for each push": Fault(
        "_push/sending.py",
        "level = logging.DEBUG if d.stopped else logging.WARNING",
        "level = logging.DEBUG if False else logging.WARNING",
        "coordinator_journal",
        "Sender._withdraw",
    ),
    "what stopped a coordinator never passes": Fault(
        "_push/dispatcher.py",
        "if outcomes.may_pass(self.stopped) and not (self.carried or self.tasks.closing.is_set()):\n            self.stopped = None\n            self.tasks.halted.clear()\n            self.companies.resume()",
        "if False and not (self.carried or self.tasks.closing.is_set()):\n            self.stopped = None\n            self.tasks.halted.clear()\n            self.companies.resume()",
        "coordinator_passing",
        "Dispatcher.begin",
    ),
    "one company's refusal stops single pushes of others": Fault(
        "_push/sending.py",
        "is_too_long = bool(d.runs) and not self.policy.waits_for(result)",
        "is_too_long = not self.policy.waits_for(result)",
        "coordinator_passing",
        "Sender._look_at",
    ),
    "a database that was away is not asked again": Fault(
        "_push/companies.py",
        "return isinstance(error, StoreUnavailable) and await self.dispatcher.tasks.sleep(UNHEARD)",
        "return False and await self.dispatcher.tasks.sleep(UNHEARD)",
        "coordinator_passing",
        "Companies.comes_back",
    ),
}
