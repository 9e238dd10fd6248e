"""`Client`, the entry point of the SDK."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import aiohttp
from attrs import NOTHING, evolve
from yarl import URL

from integration_sdk import _checks
from integration_sdk._companies import Companies, Company, Profile
from integration_sdk._connection import refuse_wrong
from integration_sdk._context import RequestContext
from integration_sdk._http import (
    ApiKeySource,
    CallInfo,
    CallOptions,
    RetryPolicy,
    Session,
    SessionStats,
    hide,
    requests,
)
from integration_sdk._options_given import (
    ENVIRONMENT_KEY,
    ENVIRONMENT_URL,
    MIB,
    Check,
    ConnectionOptions,
    CoordinatorOptions,
    Leave,
    Numbers,
    PullOptions,
    from_environment,
    given,
)
from integration_sdk._pacing import SharedRate
from integration_sdk._push.coordinator import FIVE_TIMES, Coordinator
from integration_sdk._push.polling import Polls
from integration_sdk._push.push import PushEvent
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import PushOperation, PushRequest, Quota

if TYPE_CHECKING:
    from integration_sdk._pull.pull import Pull

THREE_TIMES: Final = RetryPolicy()
_NOT_GIVEN: Any = NOTHING


class Client:
    """A client for the Data Integration Service API, for one account.

    Use it as ``async with Client(...) as client``, or call `aclose` at the end. It connects at the
    first call, so you can create it anywhere, even at module level.

    All calls of a client share its connections, its rate limits and one polling loop. After a 429
    or 503 all calls wait, or those of the company that was refused. Reads are retried; a write is
    sent again only if the first request had no effect.

    Example::

        async with Client() as client:  # key and URL from the environment
            company = await client.companies.list().one()
            async for invoice in client.company(company["id"]).data("invoices").list():
                print(invoice["id"])

    Args:
        api_key: The API key, or a function that returns it, sync or async, for keys that rotate.
            Default: the variable ``INTEGRATION_SDK_API_KEY`` of the environment.
        base_url: The URL of the service: ``https://``, or any on this machine. Default: the
            variable ``INTEGRATION_SDK_BASE_URL``.
        dialect: The version of the service. Default: `Dialect.document`.
        timeout: Seconds for a call, or a page of a list, with all retries and waits; None for no
            limit. If the service asks to wait for longer, its error is raised at once.
        read_timeout: Seconds without a byte of an answer after which it counts as lost; None for
            no limit. It matters only if *timeout* is longer.
        retry: How to retry reads, and writes that had no effect; None for no retries. By default
            a call is sent up to three times, and a coordinator's push up to five times.
        rate: Calls per second, at most, or a `SharedRate` of several processes. By default the
            client slows down only when the service asks for it.
        per_company: Concurrent calls for one company, at most.
        connections: Concurrent calls, at most; reads and writes have this many connections each.
        proxy: URL of an HTTP proxy, such as ``http://user:password@proxy.example.com:3128``.
            Proxy variables of the environment are ignored.
        ssl: An `ssl.SSLContext`, such as ``ssl.create_default_context(cafile=...)`` for a private
            CA. False checks no certificate, so that anyone on the way can read the API key.
        notified: True if you pass "Push status changed" notifications to `notify`: pushes are then
            polled a quarter as often.
        numbers: How to read fractions: "float", or "decimal" for exact values. In a model the
            types of the fields decide.
        connector: An aiohttp connector to use in place of *ssl* and *connections*, such as a
            ``TCPConnector`` with a resolver of your own. The client never closes it.
        middlewares: Client middlewares, passed to aiohttp.
        trace_configs: Trace configurations, passed to aiohttp.
        on_call: A plain function, called with a `CallInfo` after every call.

    Raises:
        ConfigurationError: The key or URL is missing, or an argument cannot work.

    Source: "Authentication". Guide: docs/guides/configure.md.
    """

    _is_derived = False

    def __init__(
        self,
        api_key: ApiKeySource | None = None,
        base_url: str | None = None,
        *,
        dialect: Dialect | None = None,
        timeout: float | None = 60.0,
        read_timeout: float | None = 60.0,
        retry: RetryPolicy | None = THREE_TIMES,
        rate: float | SharedRate | None = None,
        per_company: int = 10,
        connections: int = 100,
        proxy: str | URL | None = None,
        ssl: SSLContext | bool = True,
        notified: bool = False,
        numbers: Numbers = "float",
        connector: aiohttp.BaseConnector | None = None,
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
        trace_configs: Sequence[aiohttp.TraceConfig] = (),
        on_call: Callable[[CallInfo], None] | None = None,
    ) -> None:
        # Hidden first, so that no traceback with local variables shows it.
        api_key = hide(from_environment("api_key", ENVIRONMENT_KEY) if api_key is None else api_key)
        if base_url is None:
            base_url = from_environment("base_url", ENVIRONMENT_URL)
        options = given(ConnectionOptions, locals())
        session = Session(api_key=api_key, base_url=base_url, options=options)
        settings = CallOptions(timeout=timeout, read_timeout=read_timeout, retry=retry)
        self._context = RequestContext(options.dialect, session, settings, numbers)
        # A poll that fails is repeated when the schedule says so, which keeps the budget.
        once = evolve(settings, retry=None)
        self._polls = Polls(
            evolve(self._context, settings=once).send,
            options.dialect,
            notified=notified,
            numbers=numbers,
            rate=lambda: session.stats().rate,
        )

    def __repr__(self) -> str:
        made = getattr(self, "_context", None)  # None while __init__ raises
        return f"<Client of {made.session.base_url}, {made.dialect.name}>" if made else "<Client>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; later calls raise `ClientClosed`."""
        if self._is_derived:
            return
        try:
            await self._polls.aclose()
        finally:
            await self._context.session.aclose()

    @property
    def companies(self) -> Companies:
        """All companies of the account."""
        return Companies(self._context, "companies.list")

    def company(self, company_id: str) -> Company:
        """One company: its data, connections and pushes. Sends no request."""
        return Company(self._context, companyId=company_id)

    @property
    def profile(self) -> Profile:
        """Settings of the account."""
        return Profile(self._context)

    async def wait(
        self,
        push: PushOperation | str,
        *,
        company_id: str | None = None,
        timeout: float | None = None,
    ) -> PushOperation:
        """Wait for *push* to end and return its last state. One loop polls for all who wait.

        Args:
            push: What ``push()`` or ``update()`` returned, or the key of a push.
            company_id: The company of the push; needed if *push* is a key.
            timeout: Seconds to wait; None waits for as long as the push is Pending.

        Returns:
            The push with status Success, Failed or TimedOut. A Failed push raises no
            exception: ``validation`` holds the reasons.

        Raises:
            ConfigurationError: An argument is wrong or missing.
            NotFound: The service does not know this push.
            ApiError: The service refuses to show it, for example because the account expired.
            WaitExpired: *timeout* passed. The push continues at the service.
            PushError: The polling loop failed. The push continues; wait again.
            ClientClosed: The client was closed in the meantime.

        Source: "States and transitions", rules 1 and 2.
        """
        _checks.seconds("timeout", timeout)
        if not isinstance(push, str):
            return await self._polls.wait_for(push, timeout=timeout)
        if company_id is None:
            raise ConfigurationError("wait(key) needs company_id=, the company of the push")
        for name, value in (("company_id", company_id), ("push", push)):
            requests.segment(name, value)
        return await self._polls.wait(company_id, push, timeout=timeout)

    def notify(self, key: str) -> None:
        """Poll push *key* now, because it may have changed. Any thread may call this.

        A wrong hint does no harm. Pass this method to an `integration_sdk.webhooks.Receiver`.
        """
        self._context.session.call_on_loop(self._polls.notify, _checks.sendable("key", key))

    def coordinator(
        self,
        *,
        journal: str | os.PathLike[str] | Store | None = None,
        check: Check = None,
        max_open: int = 2000,
        leave: Leave = "drain",
        on_event: Callable[[PushEvent], None] | None = None,
        fetch_data: bool = False,
        exclusive: bool = False,
        patience: float = 30.0,
        in_doubt: Literal["ask", "resend"] = "ask",
        max_pause: float | None = 600.0,
    ) -> Coordinator:
        """Push many records and get an outcome for each. Use it with ``async with``.

        Example::

            async with client.coordinator(journal="pushes.db") as pushes:
                async for outcome in pushes.run(requests):  # an iterable of PushRequest
                    print(outcome.reference, outcome.status)

        Args:
            journal: Where to record each push before it is sent, for later runs to go on: path of
                a file, a ``postgresql://`` URL (for any number of processes), or a `Store`; None
                keeps no record.
            check: "options" checks each record against the push options. One that breaks them is
                INVALID, and not sent; warnings are logged, each kind once.
            max_open: Pushes without an outcome, at most; `Coordinator.submit` and
                `Coordinator.run` wait while there are as many.
            leave: What the end of the block does with open pushes: "drain" waits for them,
                "detach" puts their keys into `Coordinator.detached`. A block that ends with an
                exception detaches, and sends nothing more.
            on_event: A plain function, called with each `PushEvent`.
            fetch_data: Whether each outcome's operation has ``data``. It costs one more request
                where the list of pushes leaves it out. The journal keeps no data.
            exclusive: True if nobody else pushes to the same connections and data types. The only
                new push in the list must then be the one whose answer was lost.
            patience: Seconds to search the list for a push whose answer was lost; up to 20 times
                as long while a candidate is Pending.
            in_doubt: What to do with a push that no list settles: "ask" gives it the outcome
                IN_DOUBT; "resend" sends some of them again (docs/guides/in-doubt.md). Then the
                record exists twice if the first request reaches the service later.
            max_pause: Seconds for which the service may ask to wait, at most; None for any. If it
                asks for longer, as when a daily quota is spent, a single push is refused with its
                error, and a run ends with it: its open pushes are PENDING, the rest of its input
                is untouched, and ``retry_at`` says when to come back.

        Guides: docs/guides/push-many.md, in-doubt.md, web-service.md, worker.md.
        """
        options = given(CoordinatorOptions, locals())
        retry = self._context.settings.retry
        return Coordinator(
            self._context,
            self._polls,
            self._context.dialect,
            options,
            base_url=self._context.session.base_url,
            held_back=self._context.session.held_back,
            retry=FIVE_TIMES if retry is THREE_TIMES else retry,
            check=self._check if options.check else None,
        )

    async def _check(self, request: PushRequest) -> None:
        if request.delete or request.attach is not None:
            return  # there is no record
        books = self.company(request.company_id).connection(request.connection_id)
        updates = request.record_id is not None
        await refuse_wrong(books, request.data_type, request.record, "options", for_update=updates)

    def pull(
        self,
        data_types: Iterable[str],
        *,
        to: str | os.PathLike[str],
        format: Literal["ndjson", "parquet", "duckdb", "postgres"] | None = None,  # noqa: A002 - what pandas and DuckDB call it
        companies: Iterable[str] | None = None,
        full: bool = False,
        compression: Literal["gz"] | None = None,
        at_once: int = 16,
        max_bytes: int = 256 * MIB,
        part_bytes: int = 32 * MIB,
        dask: Any = None,
    ) -> Pull:
        """Write the records of companies into files or a database.

        Await it to get a `Receipt`, or iterate over its units (a company's records of one type) as
        they end. The next run continues where one was interrupted, or reads what has changed.

        Args:
            data_types: Such as ``["invoices", "customers"]``.
            to: A folder, the file of a DuckDB database, or the URL of a PostgreSQL database.
            format: None for "postgres" if *to* is a URL, "duckdb" if it ends in ``.duckdb``, else
                that of the folder, "ndjson" for a new one. Parquet needs the extra
                ``integration-sdk[arrow]``, the databases ``[duckdb]`` and ``[postgres,arrow]``.
            companies: Company ids; None for all companies of the account, later ones included.
            full: Read each unit as a whole and replace it in one step. This removes records that
                the service has deleted; other runs keep them.
            compression: For NDJSON files: "gz".
            at_once: Units to read at a time, at most; fewer if *max_bytes* is small.
            max_bytes: Bytes of records and pages to hold in memory, approximately. Columnar formats
                take about 100 MiB more.
            part_bytes: Bytes of records in a part, at most; fewer if many units share *max_bytes*.
            dask: Address of a Dask scheduler, or a ``distributed.Client``; see docs/guides/dask.md.
                It needs the extra ``integration-sdk[dask]``.

        Raises:
            ConfigurationError: An argument is invalid, or, when awaited, the target holds something
                else, there is no such company, or a data type is almost one that is known. One
                that the service does not have is an error of its units.
            PullError: When awaited: the target is in use, the disk is full, or the cluster is lost.
        """
        options = given(PullOptions, locals())
        from integration_sdk._pull.pull import Pull  # noqa: PLC0415 - few programs need it

        return Pull(self._context, options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        json: Any = None,
        raw: bool = False,
    ) -> Any:
        """Call an endpoint that has no method here. Return the decoded JSON, or None if empty.

        GET, HEAD and OPTIONS are retried like reads, other methods like writes.

        Args:
            method: HTTP method.
            path: Path below the base URL, beginning with a slash.
            params: Query parameters.
            json: The body.
            raw: Whether to return an `Answer` instead: status, headers and bytes, as of a PDF.
        """
        context = self._context
        request = requests.custom(method, path, params=params, json=json, raw=raw)
        return await (context.answer if raw else context.json)(request)

    def with_options(
        self,
        *,
        timeout: float | None = _NOT_GIVEN,
        read_timeout: float | None = _NOT_GIVEN,
        retry: RetryPolicy | None = _NOT_GIVEN,
        priority: requests.Priority | None = _NOT_GIVEN,
        headers: Mapping[str, str] = _NOT_GIVEN,
    ) -> Self:
        """Return a client with different settings that shares everything else with this one.

        Both use the same connections, rate limits, retry budget and polling. `wait` polls with
        the settings of the original client. Closing the new client closes nothing.

        Args:
            timeout: As for `Client`.
            read_timeout: As for `Client`.
            retry: As for `Client`.
            priority: Which calls go first if some have to wait; None for each kind's default.
            headers: Sent with each request, beside those of the SDK.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        changes = {name: value for name, value in options.items() if value is not _NOT_GIVEN}
        other = copy(self)
        other._is_derived = True
        settings = evolve(self._context.settings, **changes)
        other._context = evolve(self._context, settings=settings)
        return other

    def stats(self) -> SessionStats:
        """Return counts since the client was created, and its current state."""
        return self._context.session.stats()

    @property
    def quota(self) -> Quota | None:
        """The account's rate limits as the service last reported them; None before that."""
        return self._context.session.quota
