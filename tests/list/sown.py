"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a changed record of a known id stays out": Fault(
        "_list/changes.py", "mark in self._known and self._known[mark][0] == content",
        "mark in self._known", "changes_law", "Changes.opened",
    ),
    "a watermark in the future": Fault(
        "_list/changes.py", "min(moment, self._now)", "moment", "changes_law", "Changes._bounded"
    ),
    "a moment is done though records are missing": Fault(
        "_list/changes.py", "total and len(tie.ids) >= total and not tie.grew", "total",
        "changes_law", "Changes._after_tie",
    ),
    "both states of one record come": Fault(
        "_list/changes.py", "last[mark] == n", "True", "pull_odd", "Changes.opened"
    ),
    "a page's link in another case leads away": Fault(
        "_list/links.py", "unquote(link.raw_path).rstrip('/').casefold()", "unquote(link.raw_path)",
        "list_law", "Links._stays",
    ),
    "a limit is taken for the end of the list": Fault(
        "_list/reader.py", "self.taken == len(self.opened.raws)", "True", "lists",
        "Reading._compare_with_total",
    ),
    "a page that is too large is not asked for in smaller ones": Fault(
        "_list/reader.py", "isinstance(outcome, ResponseTooLarge)", "False", "lists",
        "Reading._page",
    ),
    "changes that are too large are skipped": Fault(
        "_list/changes.py", "size < 1", "True", "changes_law", "Changes.smaller"
    ),
    "empty pages are followed for ever": Fault(
        "_list/links.py", "self._empty > MOST_EMPTY", "False", "lists", "Links._following"
    ),
    "what was requested ahead is taken for what is linked": Fault(
        "_list/reader.py", "not same(self._ahead[0][0], following)", "False", "lists",
        "Reading._aim",
    ),
    "a cursor is behind rows that nobody has": Fault(
        "_list/reader.py", "self.held or (self.cursor, self._fit)", "None", "lists", "Reading.hold"
    ),
    "a large page of nested items is split at once": Fault(
        "_list/page.py", "end + first", "end + b'{'", "lists", "_split"
    ),
    "the rest of a large page is lost": Fault(
        "_list/page.py", "envelope.results[:0] = raws", "envelope.results = raws", "lists", "_split"
    ),
}  # fmt: skip
