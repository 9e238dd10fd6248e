"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a changed record of a known id stays out": Fault(
        "_list/changes.py",
        "mark in self._known and self._known[mark][0] == content",
        "mark in self._known",
        "changes_law",
        "Changes.opened",
    ),
    "a watermark in the future": Fault(
        "_list/changes.py",
        "min(moment, self._now)",
        "moment",
        "changes_law",
        "Changes._bounded",
    ),
    "a moment is done though records are missing": Fault(
        "_list/changes.py",
        "total and len(tie.ids) >= total and not tie.grew",
        "total",
        "changes_law",
        "Changes._after_tie",
    ),
    "empty pages are followed for ever": Fault(
        "_list/links.py",
        "self._empty > MOST_EMPTY",
        "False",
        "lists",
        "Links._following",
    ),
    "what was requested ahead is taken for what is linked": Fault(
        "_list/reader.py",
        "not same(self._ahead[0][0], following)",
        "False",
        "list_law",
        "Reading._aim",
    ),
    "the rest of a large page is lost": Fault(
        "_list/page.py",
        "envelope.results[:0] = raws",
        "envelope.results = raws",
        "lists",
        "_split",
    ),
}
