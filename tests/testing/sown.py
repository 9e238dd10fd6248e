"""Faults that the tests of the test kit must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "what is doubled is not seen": Fault(
        "testing/_crash_report.py", "one.verb in CREATES", "False", "crashtest", "CrashReport.judge"
    ),
    "what a file lacks is not seen": Fault(
        "testing/_crash_report.py", "usually - held", "held - usually", "crashtest",
        "CrashReport._compare",
    ),
    "a push in doubt is a lost one": Fault(
        "testing/_crash_report.py", "self.in_doubt += 1", 'self._found(round_, "lost", "")',
        "crashtest", "CrashReport.judge",
    ),
    "a killed program is not started again": Fault(
        "testing/_crash.py", "None if was_killed else ''", "''", "crashtest", "_Playing._live"
    ),
    "the clock moves while a thread works": Fault(
        "testing/_virtual_time.py", "timeout is None or self._loop.waits_for", "timeout is None",
        "virtual_time", "_JumpingSelector.select",
    ),
    "a fault of a marker is not set": Fault(
        "testing/_fixtures.py", 'request.node.iter_markers("integration_faults")', "[]", "plugin",
        "integration_sandbox",
    ),
}  # fmt: skip
