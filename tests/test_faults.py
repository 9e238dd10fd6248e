"""The list of faults fits the package: each could be sown now."""

from __future__ import annotations

import pytest

from tests.faults import FAULTS, ROOT


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_sown(name: str) -> None:
    """Its text occurs exactly once, and the tests that must catch it exist."""
    fault = FAULTS[name]
    text = (ROOT / "integration_sdk" / fault.file).read_text()

    assert text.count(fault.old) == 1
    assert all((ROOT / f"tests/test_{one}.py").exists() for one in fault.tests.split())
