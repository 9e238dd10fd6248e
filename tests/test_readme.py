"""README shows code that runs."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.sandbox import Sandbox

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
RECORD = {
    "customerRef": {"id": "1"},
    "issueDate": "2022-01-31T00:00:00Z",
    "currency": "GBP",
    "status": "Submitted",
    "lineItems": [{"description": "Advice", "quantity": 1, "unitAmount": 10}],
}

SAYS = (
    r".*\n2500 invoices in 3 pages: [\d,.]+\n",
    r"Success \{.*'customerRef'.*\}\n",
    r"",
    r"",
    r"",
    r"([0-9a-f-]{36} SUCCESS\n)\1",
    r"",
)
"""What each block prints; what goes wrong would be printed too."""
POSTS = (0, 1, 100, 1, 0, 1, 0)
"""Records that each block pushes."""


@pytest.mark.parametrize("block", range(len(BLOCKS)))
async def test_block_runs(
    block: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each Python block runs as it stands against the sandbox."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox(invoices=2_500) as sandbox:
        company = sandbox.companies[0]
        monkeypatch.setenv("INTEGRATION_SDK_API_KEY", sandbox.api_key)
        monkeypatch.setenv("INTEGRATION_SDK_BASE_URL", sandbox.base_url)
        given: dict[str, Any] = {
            "api_key": sandbox.api_key,
            "base_url": sandbox.base_url,
            "company_id": company.id,
            "connection_id": company.connections[0].id,
            "record": RECORD,
        }
        code = compile(BLOCKS[block], "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, given)  # noqa: S307 (our own README)
        if inspect.isawaitable(running):
            await running

    assert re.fullmatch(SAYS[block], capsys.readouterr().out, re.DOTALL)
    assert sandbox.count("POST") == POSTS[block]
