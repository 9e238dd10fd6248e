"""Programs that clients live in: loops one after another, web services, workers."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox
from tests.support.loops import RunOnLoop
from tests.support.session_support import KEY, always, answer, raw_server, unused_port

SERVICE = """
import os
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
    page = await app.state.client.companies.list()
    return {"worker": os.getpid(), "total": page.total_results}

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


def test_workers_of_a_web_service(tmp_path: Path) -> None:
    """FastAPI under ``uvicorn[standard]``, which runs uvloop: every worker calls and gives up."""
    (tmp_path / "service.py").write_text(SERVICE)
    asyncio.run(_serve(tmp_path))


async def _serve(folder: Path) -> None:
    port = unused_port()
    command = [sys.executable, "-m", "uvicorn", "service:app", "--workers", "2"]
    async with Sandbox(companies=3, invoices=1) as sandbox:
        sandbox.faults.latency(30, route="^GET /hanging")
        environment = {
            "INTEGRATION_SDK_API_KEY": sandbox.api_key,
            "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        service = await asyncio.create_subprocess_exec(
            *command, "--port", str(port), "--log-level", "warning", cwd=folder, env=environment
        )
        try:
            await asyncio.to_thread(_use, port)
        finally:
            service.terminate()
            await service.wait()


def _use(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < until, "uvicorn does not come up"
            time.sleep(0.1)

    def get(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    assert get("/loop").strip('"').startswith("uvloop")
    answers = [get("/companies") for _ in range(20)]
    assert all('"total":3' in one for one in answers)
    assert [get("/hanging") for _ in range(3)] == ['"AnswerLost"'] * 3
