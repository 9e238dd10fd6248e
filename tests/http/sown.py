"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a dead connection costs the call": Fault(
        "_http/transport.py", "not error.was_idle", "error", "session_phases",
        "Transport.send",
    ),
    "a cut body is whole": Fault(
        "_http/transport.py", "not self._stream.eof", "False", "session_wire", "_Gunzip.feed"
    ),
    "a redirect is in doubt": Fault(
        "_http/statuses.py", "not_taken or status in (307, 308)",
        "not_taken and status in (307, 308)", "statuses", "of_answer",
    ),
    "a lost write is sent again": Fault(
        "_http/statuses.py", "phase is Phase.NEVER_LEFT or safety is Safety.READ", "safety",
        "session_phases", "of_failure",
    ),
    "an old answer opens the gate": Fault(
        "_http/limits.py", "self.closed_by is None or sent_at <= self.closed_at",
        "self.closed_by is None", "throttle throttle_crowd", "Lane.answered",
    ),
    "two probes at once": Fault(
        "_http/limits.py", "now + PROBE_PATIENCE", "now", "throttle throttle_crowd", "Lane.sent"
    ),
    "a cancelled call has its turn": Fault(
        "_http/open_session.py", "self.limiter.unused(call, now)", "None", "session_calls",
        "OpenSession._let_through",
    ),
    "no fair turn": Fault(
        "_http/limiter.py", "self._turns % FAIR_TURN == FAIR_TURN - 1", "self._turns < 0",
        "throttle", "Limiter._next",
    ),
    "a rate that never grows": Fault(
        "_http/limits.py", "self._has_held and self.learnt < math.inf", "False", "throttle_crowd",
        "Pace.answered",
    ),
    "no company is refused alone": Fault(
        "_http/limiter.py", "0 < self._rounds <= self._others", "False", "throttle throttle_crowd",
        "Limiter._concerns_company",
    ),
    "a pace learnt from one refused company": Fault(
        "_http/limiter.py", "self.pace.forget()", "None", "throttle_crowd", "Limiter.refused"
    ),
}  # fmt: skip
