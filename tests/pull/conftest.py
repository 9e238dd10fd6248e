"""Places to write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pull_support import SINKS, Place, new_place


@pytest.fixture(params=SINKS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each format, or of those that a test is parametrized with."""
    return await new_place(request, tmp_path, request.param)


@pytest.fixture
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return await new_place(request, tmp_path, "postgres")
