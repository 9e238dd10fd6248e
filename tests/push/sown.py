"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them.

Those of the protocol of pushes are in ``tests/proofs/test_simulator.py``.
"""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a doubt is bound to its earlier attempt": Fault(
        "_push/search.py",
        "folded(key) in {folded(one.key) for one in row.earlier if one.key}",
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
}
