"""Proof: on a failing service, who breaks off or is killed loses nothing and doubles nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.proofs.proof_soak import soak

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("dialect", ["document", "published"])
@pytest.mark.parametrize(
    ("rounds", "seed"), [(1, 1), *(pytest.param(10, n, marks=pytest.mark.long) for n in range(9))]
)
async def test_all_weathers_do_no_harm(
    dialect: Literal["document", "published"], tmp_path: Path, rounds: int, seed: int
) -> None:
    """Pushes exist once or not at all, and what is said of them is true."""
    report = await soak(tmp_path, rounds, seed=seed, dialect=dialect)

    assert report.violations == []
    assert report.done["pushes judged"] >= 3 * rounds
    assert report.done["processes killed"]
