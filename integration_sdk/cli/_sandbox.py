"""The command that serves a sandbox."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from shlex import join
from urllib.parse import quote

from integration_sdk.cli._display import Interrupted, interruptible, note, show, usable
from integration_sdk.cli._service import Flag
from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Sandbox


async def sandbox(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    companies: int = 3,
    invoices: int = 20_000,
    seed: int = 0,
    push_seconds: tuple[float, float] = (0.05, 0.3),
    published: Flag = False,
    api_key: str | None = None,
    free_plan: Flag = False,
    daily_quota: int | None = None,
    faults: Path | None = None,
    subscribe: list[str] | None = None,
    verbose: Flag = False,
) -> None:
    """Serve a sandbox of the service until Ctrl-C or SIGTERM.

    Faults can be changed while it runs: POST /_page/faults adds some, in the JSON of --faults, GET
    lists them with the number of requests each was applied to, and DELETE removes all. These
    requests need the API key, like any other.

    Parameters
    ----------
    host
        Address to listen on.
    port
        Port to listen on; 0 for any free port.
    companies
        Companies that exist at the start.
    invoices
        Invoices of each company.
    seed
        The same seed gives the same records, ids and faults.
    push_seconds
        Shortest and longest time, in seconds, that a push takes on asynchronous platforms.
    published
        Speak today's public API instead of the interface document.
    api_key
        The only API key that is accepted. By default it is derived from the seed.
    free_plan
        Serve an account of the free plan: 50 companies, one sync a day, 365 days.
    daily_quota
        Requests per day. Without it no request is refused.
    faults
        JSON file of faults, such as [{"fault": "rate_limit", "per_second": 20}, {"fault":
        "status", "code": 503, "route": "GET", "probability": 0.1}]. Names and arguments are those
        of the methods of integration_sdk.sandbox.Faults; [1, 3] is a range of seconds.
    subscribe
        URL that is sent "Push status changed" when a push ends; can be repeated. With
        --published the request is signed, and the secret is printed.
    verbose
        Log each request and its status to stderr.
    """
    try:
        server = Sandbox(
            companies,
            invoices,
            seed=seed,
            dialect="published" if published else "document",
            api_key=api_key,
            free_plan=free_plan,
            push_seconds=push_seconds,
            daily_quota=daily_quota,
            remember=0,  # what it remembers cannot be asked for
            host=host,
            port=port,
        )
        if faults is not None:
            with usable(f"cannot read {faults}"):
                text = faults.read_bytes()  # noqa: ASYNC240 - nothing is served yet
            server.faults.add_listed(text)
        for url in subscribe or ():
            to = server.subscribe(url, style="signed" if published else "rule")
            if to.secret:
                show(f"Secret: {to.secret}")
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if verbose:
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("integration_sdk.sandbox").setLevel(logging.INFO)
    with suppress(Interrupted):
        await interruptible(_serve(server))
    note("Sandbox stopped.")


async def _serve(server: Sandbox) -> None:
    """Show how *server* is called, and run it until cancelled."""
    async with server:
        url, key = server.base_url, server.api_key
        show(f"Sandbox: {url}")
        show(f"API key: {key}")
        credential = b64encode(key.encode()).decode()
        show(f"Try: curl -H 'Authorization: Basic {credential}' {url}/companies")
        show(f"Look: {url}/#{quote(key)} shows pushes, faults and a form")
        variables = f"INTEGRATION_SDK_BASE_URL={url}", f"INTEGRATION_SDK_API_KEY={key}"
        show(f"export {join(variables)}")
        if server.dialect == "published":
            show("Dialect: use Client(dialect=Dialect.published()), or --published in commands")
        await asyncio.Event().wait()
