"""A library leaves its host process alone."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import DELIVERY


async def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    """Whoever lists and pushes finds its collector, allocator, signals, warnings, logging,
    environment and event loops as before; the collector stays on while items are made.
    """
    async with Sandbox(companies=1, invoices=1000) as sandbox:
        books = sandbox.companies[0].connections[0]
        job = {"company": books.company_id, "connection": books.id, "record": DELIVERY}
        job |= {"base_url": sandbox.base_url, "api_key": sandbox.api_key}
        job |= {"journal": str(tmp_path / "pushes.db")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.host_child", json.dumps(job)),
            cwd=Path(__file__).parents[2],
            stdout=PIPE,
        )
        stdout, _ = await process.communicate()

    assert process.returncode == 0
    assert json.loads(stdout) == {"items made": 2000}
