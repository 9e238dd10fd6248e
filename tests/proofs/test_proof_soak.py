"""Proof: on a failing service, who breaks off or is killed loses nothing and doubles nothing.

A part of ``python -m benchmarks.proof soak``, in virtual time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.proofs.proof_soak import soak

pytestmark = pytest.mark.virtual_time

ROUNDS = 1


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_everything_at_once_does_no_harm(
    dialect: Literal["document", "published"], tmp_path: Path
) -> None:
    """Lists are read whole, pushes exist once or not at all, and what is said of them is true."""
    report = await soak(tmp_path, ROUNDS, seed=1, dialect=dialect)

    assert report.violations == []
    assert report.done["lists read"] == 3 * 5 * ROUNDS
    assert report.done["pushes judged"] >= 3 * ROUNDS
    assert report.done["processes killed"]
