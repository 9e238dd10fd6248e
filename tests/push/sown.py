"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them.

Those of the protocol of pushes are in ``tests/proofs/test_simulator.py``.
"""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a push leaves before its row is on record": Fault(
        "_push/holder.py",
        "await live.writing",
        "new",
        "journals",
        "Holder._recorded",
    ),
    "what was concluded from an earlier row counts": Fault(
        "_push/holder.py",
        "judged is not None and judged is not row",
        "False",
        "doubts",
        "Holder.step",
    ),
    "steps of a row do not wait for each other": Fault(
        "_push/holder.py",
        "live.writing is not None",
        "False",
        "doubts",
        "_written",
    ),
    "what is on record is called unsent at once": Fault(
        "_push/holder.py",
        "live.is_own and (is_kept or is_resent) and not (self.over or fails)",
        "False",
        "leaving stops",
        "Holder.leave",
    ),
    "an idempotency key is relied upon for ever": Fault(
        "_push/carrier.py",
        "passed < REPLAY_WINDOW",
        "True",
        "doubts",
        "Carriers._may_replay",
    ),
    "a key that is refused stops no run": Fault(
        "_push/carrier.py",
        "self._refused_keys[0] >= REFUSED_KEYS and isinstance(error, Unauthorized)",
        "False",
        "stops",
        "Carriers._look_at",
    ),
    "a refusal of the second transmission settles the first": Fault(
        "_push/table.py",
        "event in {Event.REFUSED, Event.WITHDRAWN} and ghosts",
        "False",
        "push_table doubts",
        "after",
    ),
    "what may be one of others' pushes is sent again": Fault(
        "_push/evidence.py",
        "again and is_absent and row.ghosts < transmissions",
        "again and row.ghosts < transmissions",
        "doubts",
        "may_resend",
    ),
    "a doubt is bound to its earlier attempt": Fault(
        "_push/search.py",
        "folded(key) in row.earlier_keys",
        "False",
        "doubts",
        "Search._check_key",
    ),
    "a key of another lane is bound": Fault(
        "_push/search.py",
        "not in_lane(found[0], row.lane, self.holder.wire.dialect)",
        "False",
        "doubts",
        "Search._check_key",
    ),
    "what is decided about is not held": Fault(
        "_push/search.py",
        "holder.hold(live)",
        "None",
        "doubts",
        "Search._take",
    ),
    "a claim forgets what was decided meanwhile": Fault(
        "_push/search.py",
        "(claimed := holder.live.get(row.id)) is not None",
        "False",
        "doubts",
        "Search._take",
    ),
    "a decision that another forestalls is refused": Fault(
        "_push/search.py",
        "live.row is row",
        "True",
        "doubts",
        "Search._record",
    ),
    "a reference is sent again though it is known": Fault(
        "_push/outcomes.py",
        "before.result is Result.REFUSED and not _is_of_the_content(before)",
        "True",
        "references",
        "take_up",
    ),
    "a push that may take effect gives its reference away": Fault(
        "_push/outcomes.py",
        "freed or before.result is Result.REFUSED or has_ended(before, PushStatus.FAILED)",
        "True",
        "references",
        "take_up",
    ),
    "polls know no floor": Fault(
        "_push/schedule.py",
        "max(limits.floor, limits.floor_share * (push.polled - push.born))",
        "0.0",
        "budgets",
        "Schedule._read_at",
    ),
    "each worker has a company's whole budget": Fault(
        "_push/schedule.py",
        "self.limits.per_company / self.workers",
        "self.limits.per_company",
        "polling_figures",
        "Schedule._share",
    ),
    "nobody looks at a push's own deadline": Fault(
        "_push/schedule.py",
        "minutes is not None",
        "False",
        "waits",
        "Schedule.follow",
    ),
    "a final state changes back": Fault(
        "_push/schedule.py",
        "len(self.left) > self.limits.remembered",
        "True",
        "poller",
        "Schedule.forget",
    ),
    "a run reads on while nobody takes its outcomes": Fault(
        "_push/run.py",
        "await self._unconsumed.acquire()",
        "await asyncio.sleep(0)",
        "runs",
        "Run._feed",
    ),
}
