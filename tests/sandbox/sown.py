"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "data below a connection is read below the company too": Fault(
        "sandbox/_endpoints.py", 'DATA_TYPES[kind].place not in {place, "both"}', "False",
        "sandbox_routes", "_records",
    ),
    "a deadline is not kept": Fault(
        "sandbox/_pushes.py", "operation.ends > operation.deadline", "False", "sandbox_pushing",
        "Ledger.settle",
    ),
    "a throttled answer is kept for its idempotency key": Fault(
        "sandbox/_front.py", "found.status == 429", "False", "sandbox_faults", "Replays.through"
    ),
    "a text equals a number": Fault(
        "sandbox/_lists.py", "found if kind in {None, type(found)} else None", "found",
        "sandbox_routes", "_comparable",
    ),
    "a search shows a list that has changed since": Fault(
        "sandbox/_records.py", "self._version, query, order_by", "query, order_by",
        "sandbox_lists", "DataSet.answer",
    ),
    "a fault skips calls that it does not concern": Fault(
        "sandbox/_rules.py", "bool(pattern.search(text) and only.search(text))",
        "bool(pattern.search(text))", "sandbox_faults", "matcher",
    ),
    "the page's calls need no key": Fault(
        "sandbox/_page.py", "check_key(self._service, call)", "None", "sandbox_page", "Page.respond"
    ),
    "a forged notification has a valid proof": Fault(
        "sandbox/_notices.py", 'letter.forged == "secret"', "False", "sandbox_notifications",
        "_headers",
    ),
    "a list ends with an empty page": Fault(
        "sandbox/_lists.py", "number * size < total", "number * size <= total", "sandbox_document",
        "page_answer",
    ),
    "what a platform does not list is kept": Fault(
        "sandbox/_pushes.py", "without_unlisted(self.shape, decode(self.sent))",
        "decode(self.sent)", "sandbox_pushing", "Operation.as_kept",
    ),
    "null decides the type of a property": Fault(
        "sandbox/_lists.py", "value is not None", "True", "sandbox_routes", "_kind"
    ),
}  # fmt: skip
