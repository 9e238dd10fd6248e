"""Faults that the tests of the command must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "what others have chosen reaches the terminal as it is": Fault(
        "cli/_display.py", "printable(text)", "text", "pushing", "show"
    ),
    "a refused record does not show in the exit code of a dry run": Fault(
        "cli/_push.py", 'NOT_ALL if found["refused"] else 0', "0", "pushing", "push"
    ),
    "a refusal of all records does not stop the reading": Fault(
        "cli/_run.py", "isinstance(error, ApiError)", "False", "pushing", "Run.report"
    ),
    "a second equal line has the name of the first": Fault(
        "cli/_records.py", "self._seen[name] > 1", "False", "pushing", "RecordOptions._content_name"
    ),
    "a fraction is read as a float": Fault(
        "cli/_records.py", "msgspec.json.Decoder(float_hook=Decimal).decode",
        "msgspec.json.Decoder().decode", "pushing",
    ),
    "an interrupted run ends well": Fault(
        "cli/_run.py", "self.interrupted = True", "self.interrupted = False", "ends",
        "Run.interrupt",
    ),
    "the second Ctrl-C waits": Fault(
        "cli/_display.py", "os._exit(INTERRUPTED)", "None", "ends", "on_interrupt"
    ),
}  # fmt: skip
