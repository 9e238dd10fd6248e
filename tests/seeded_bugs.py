"""How a bug is seeded and how the simulator must answer."""

from collections.abc import Callable
from typing import Any

import pytest

from tests import protocol_simulator as simulator

HISTORIES = 1500
Patch = pytest.MonkeyPatch


def assert_caught(violation: str, seed_bug: Callable[[Patch], None], **weather: Any) -> None:
    """The bug must be seen, and the same histories be clean without it."""
    with pytest.MonkeyPatch.context() as patch:
        seed_bug(patch)
        sick = simulator.simulate(range(HISTORIES), stop_at=violation, **weather)
    assert any(one.startswith(violation) for _, one in sick.violations)
    last = sick.violations[-1][0]
    assert not simulator.simulate(range(max(0, last - 100), last + 1), **weather).violations
