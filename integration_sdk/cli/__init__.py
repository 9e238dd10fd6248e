"""The command ``integration-sdk``: a sandbox to develop against, a demo, and bulk pushes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from integration_sdk import __version__
from integration_sdk.cli.demo import DemoSettings, run_demo
from integration_sdk.sandbox import Sandbox, serve

app = App(
    name="integration-sdk",
    help="Asyncio client for the Data Integration Service API.",
    version=__version__,
)


@app.command
def sandbox(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    companies: int = 3,
    invoices: int = 20_000,
    seed: int = 0,
    published: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Serve a sandbox of the service until Ctrl-C.

    Parameters
    ----------
    host
        Where to listen.
    port
        Where to listen; 0 for any that is free.
    companies
        Companies that are there from the start.
    invoices
        Invoices in each company's books.
    seed
        The same seed gives the same books and identifiers.
    published
        Speak today's public API in place of the interface document.
    """
    server = Sandbox(
        companies=companies,
        invoices=invoices,
        seed=seed,
        host=host,
        port=port,
        dialect="published" if published else "document",
    )
    try:
        asyncio.run(serve(server))
    except KeyboardInterrupt:
        Console(stderr=True).print("Sandbox stopped.")


@app.command
def demo(
    *,
    base_url: str | None = None,
    api_key: Annotated[str | None, Parameter(env_var="INTEGRATION_SDK_API_KEY")] = None,
    allow_push: Annotated[bool, Parameter(negative="")] = False,
    invoices: int = 20_000,
    pushes: int = 500,
    page_size: int = 500,
    prefetch: int = 8,
    seed: int = 0,
) -> None:
    """Stream invoices and push records at once, while the server throttles and stumbles.

    Parameters
    ----------
    base_url
        A server of your own; without it an embedded sandbox serves.
    api_key
        Its key.
    allow_push
        Push to a server of your own, too. The sandbox is always pushed to.
    invoices
        How many to stream, at most.
    pushes
        How many to push.
    page_size
        Invoices a page.
    prefetch
        Pages fetched ahead.
    seed
        Of the sandbox.
    """
    settings = DemoSettings(
        base_url=base_url,
        api_key=api_key,
        allow_push=allow_push,
        invoices=invoices,
        pushes=pushes,
        page_size=page_size,
        prefetch=prefetch,
        seed=seed,
    )
    asyncio.run(run_demo(settings, Console(), Console(stderr=True)))
