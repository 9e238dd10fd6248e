"""Programs that clients live in: loops one after another, and a web service."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox
from tests.support.loops import RunOnLoop
from tests.support.session_support import KEY, always, answer, raw_server, unused_port

SERVICE = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from integration_sdk import Client

@asynccontextmanager
async def lifespan(app):
    async with Client(timeout=20) as app.state.client:
        yield

app = FastAPI(lifespan=lifespan)

@app.get("/loop")
async def loop():
    import asyncio
    return type(asyncio.get_running_loop()).__module__

@app.get("/companies")
async def companies():
    return (await app.state.client.companies.list()).total_results

@app.get("/hanging")
async def hanging():
    try:
        await app.state.client.with_options(timeout=0.2, retry=None).request("GET", "/hanging")
    except Exception as error:
        return type(error).__name__
"""


def test_a_module_level_client_works_in_one_loop_after_another(run_on_loop: RunOnLoop) -> None:
    """``asyncio.run`` again and again, and a loop that was closed by hand with calls under way."""
    client = Client(KEY, f"http://127.0.0.1:{(port := unused_port())}")

    async def calls() -> None:
        async with raw_server(always(answer()), port):
            for _ in range(3):
                await client.request("GET", "/companies")

    for _ in range(2):
        run_on_loop(calls())
    loop = run_on_loop.make()
    loop.run_until_complete(calls())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    run_on_loop(calls())
    assert client.stats().requests == 12
    run_on_loop(client.aclose())


async def test_a_web_service(tmp_path: Path) -> None:
    """FastAPI under ``uvicorn[standard]``, which runs uvloop: calls are made and given up."""
    (tmp_path / "service.py").write_text(SERVICE)
    port = unused_port()
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port)]
    async with Sandbox(companies=3, invoices=1) as sandbox:
        sandbox.faults.latency(30, route="^GET /hanging")
        environment = {
            "INTEGRATION_SDK_API_KEY": sandbox.api_key,
            "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        service = await asyncio.create_subprocess_exec(
            *command, "--log-level", "warning", cwd=tmp_path, env=environment
        )
        try:
            answers = await asyncio.to_thread(asked, port)
        finally:
            service.terminate()
            await service.wait()

    loop, *others = answers
    assert loop.startswith('"uvloop')
    assert others == ["3"] * 20 + ['"AnswerLost"'] * 3


def asked(port: int) -> list[str]:
    paths = ["/loop", *["/companies"] * 20, *["/hanging"] * 3]
    while True:  # until the service is up
        with suppress(URLError):
            return [urlopen(f"http://127.0.0.1:{port}{path}").read().decode() for path in paths]
        time.sleep(0.1)
