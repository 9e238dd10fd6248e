"""The list of faults fits the package: each could be sown now."""

from __future__ import annotations

import ast

import pytest

from tests.faults import FAULTS
from tests.support.fault import ROOT


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_sown(name: str) -> None:
    """Its function has the expression once, and the tests that must catch it exist."""
    fault = FAULTS[name]
    text = (ROOT / "integration_sdk" / fault.file).read_text()

    ast.parse(fault.sown(text))
    assert fault.sown(text) != text
    assert fault.files()
