"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "repair takes a changed item for known": Fault(
        "_list/repair.py",
        "return before is not None and (before == content or self._contents_vary)",
        "return before is not None",
        "repair repair_moves",
        "RepairWalk._is_same",
    ),
    "repair pages do not overlap": Fault(
        "_list/repair.py",
        "begin, most = max(reached - self._overlap, 0), self._limit_of_size",
        "begin, most = max(reached, 0), self._limit_of_size",
        "repair repair_moves",
        "RepairWalk._plan",
    ),
    "repair hands out twice": Fault(
        "_list/repair.py",
        "[\n            index\n            for index, key in enumerate(keys)\n            if index >= first and key not in seen and not (marks and mark(key) in marks)\n        ]",
        "[\n            index\n            for index, key in enumerate(keys)\n            if index >= first and not (marks and mark(key) in marks)\n        ]",
        "repair",
        "RepairWalk._new_items",
    ),
    "repair pages do not grow": Fault(
        "_list/repair.py",
        "while _end(wanted) <= reached and size < most:\n            size = min(2 * size, most)\n            wanted = self._longest(begin, size)",
        "while False:\n            size = min(2 * size, most)\n            wanted = self._longest(begin, size)",
        "repair repair_moves",
        "RepairWalk._plan",
    ),
    "a page fetched before a move counts": Fault(
        "_list/repair.py",
        "if self._ahead and len(keys) - len(new) > self._reached - (wanted.offset or 0):\n            # Fetched before a record moved, so it may lack items appended since: fetch it again.\n            self._ahead = False\n            self.start_over(self._plan(self._reached))\n            return None",
        "if False and len(keys) - len(new) > self._reached - (wanted.offset or 0):\n            # Fetched before a record moved, so it may lack items appended since: fetch it again.\n            self._ahead = False\n            self.start_over(self._plan(self._reached))\n            return None",
        "repair repair_moves",
        "RepairWalk.opened",
    ),
    "drift far from the border is missed": Fault(
        "_list/drift.py", "NEAR: Final = 32", "NEAR: Final = 1", "drift_seen", ""
    ),
    "a total that changes is no drift": Fault(
        "_list/drift.py",
        'if total is not None and page.total is not None and total != page.total:\n        text = f"totalResults went from {total} to {page.total}"\n        yield Drift(kind="total", page=page.number, detail=text)',
        'if False:\n        text = f"totalResults went from {total} to {page.total}"\n        yield Drift(kind="total", page=page.number, detail=text)',
        "drift_seen",
        "total_changed",
    ),
    "a list that ends early is whole": Fault(
        "_list/drift.py",
        'if total is not None and done != total:\n        text = f"the list ended after {done} items, and totalResults says {total}"\n        yield Drift(kind="count", page=page, detail=text)',
        'if False:\n        text = f"the list ended after {done} items, and totalResults says {total}"\n        yield Drift(kind="count", page=page, detail=text)',
        "drift_seen pager_oddities",
        "shortfall",
    ),
    "a page that loops is read again": Fault(
        "_list/walk.py",
        'if backwards or mark in self._pages_seen:\n            raise self.error(\n                f"the next link of page {number} leads back to a page that was read already "\n                f"({page.links.next!r:.500})",\n                number,\n            )',
        'if backwards:\n            raise self.error(\n                f"the next link of page {number} leads back to a page that was read already "\n                f"({page.links.next!r:.500})",\n                number,\n            )',
        "paging pager pager_oddities pager_mishaps",
        "PageWalk._follow_link",
    ),
    "another page is taken": Fault(
        "_list/walk.py",
        'if None not in {wanted.number, number} and wanted.number != number:\n            what = f"page {wanted.number} was requested, but page {number} was returned"\n            raise self.error(what, wanted.number)',
        'if False:\n            what = f"page {wanted.number} was requested, but page {number} was returned"\n            raise self.error(what, wanted.number)',
        "paging pager pager_oddities pager_mishaps",
        "Walk.check_number",
    ),
    "memory without a bound": Fault(
        "_list/walk.py",
        "affordable = (self.max_bytes - self._held) // max(self._body, 1)",
        "affordable = 100",
        "paging pager",
        "Walk.to_fetch",
    ),
    "pages beyond the limit are fetched": Fault(
        "_list/walk.py",
        "return min(self.total, following.offset + self.limit - self.offered)",
        "return self.total",
        "paging pager",
        "PageWalk._foreseeable",
    ),
    "a cursor of another list": Fault(
        "_list/cursor.py",
        'if token.of != _fingerprint(request):\n        raise ConfigurationError(\n            f"this cursor belongs to another list than {request.path} with this filter and order; "\n            "pass it to the list() call that it came from"\n        )',
        'if False:\n        raise ConfigurationError(\n            f"this cursor belongs to another list than {request.path} with this filter and order; "\n            "pass it to the list() call that it came from"\n        )',
        "cursor",
        "read_cursor",
    ),
    "a damaged cursor": Fault(
        "_list/cursor.py",
        'if token is None or cursor != _seal(payload):\n        raise ConfigurationError("this cursor is damaged: pass a list\'s cursor as it was, in full")',
        'if token is None:\n        raise ConfigurationError("this cursor is damaged: pass a list\'s cursor as it was, in full")',
        "cursor",
        "_parse",
    ),
}
