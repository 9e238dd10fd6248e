"""`Client`: the door to everything, and the place where it is wired together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from attrs import evolve

from integration_sdk._caller import Caller, Polling
from integration_sdk._connections import Check, refuse_wrong, wants_check
from integration_sdk._resources import Companies, Company, Profile
from integration_sdk._sansio import custom, requests
from integration_sdk._sansio.routes import check_routes
from integration_sdk._session import (
    CallInfo,
    CallOptions,
    RetryPolicy,
    Session,
    SessionStats,
    Source,
    hide,
)
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from ssl import SSLContext

    import aiohttp
    from yarl import URL

    from integration_sdk._answers import Quota
    from integration_sdk._coordinator.coordinator import Coordinator
    from integration_sdk._coordinator.options import CoordinatorOptions
    from integration_sdk.models import PushOperation, PushRequest

ENVIRONMENT_KEY = "INTEGRATION_SDK_API_KEY"
ENVIRONMENT_URL = "INTEGRATION_SDK_BASE_URL"


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"


_NOT_GIVEN: Any = _NotGiven()


class Client:
    """A client for the Data Integration Service API, for one account.

    Use it as ``async with Client(...) as client``, or call `aclose` when you are done.
    You can create it anywhere, even at module level: it connects on the first call.

    Args:
        api_key: The API key, or a function or coroutine function that returns it, for
            keys that rotate. Defaults to the environment variable
            ``INTEGRATION_SDK_API_KEY``.
        base_url: The URL of the service. It must be ``https://`` unless the service runs
            on this machine. Defaults to the environment variable
            ``INTEGRATION_SDK_BASE_URL``.
        dialect: The version of the service. Defaults to `Dialect.document`.
        timeout: Seconds for a whole call, including retries and waits; None for no limit.
            Each page of a list is a call.
        retry: How to retry reads, and writes that had no effect; None disables retries.
            By default a call is sent up to three times, a coordinator's push up to five.
        rate: Maximum number of calls per second. By default the client slows down only
            when the service asks it to.
        per_company: Maximum number of concurrent calls for one company.
        connections: Maximum number of concurrent calls. Reads and writes use connections of
            their own, up to this many each.
        proxy: URL of an HTTP proxy, such as ``http://user:password@proxy.example.com:3128``.
            The client ignores proxy environment variables. The proxy sees the host and port
            of the service, but neither API key nor data, which stay encrypted end to end;
            with an ``http://`` base URL it would see everything, so both must then be on
            this machine.
        ssl: An `ssl.SSLContext`, for example one that trusts a private CA:
            ``ssl.create_default_context(cafile=...)``. False disables certificate checks, so
            that anyone on the way can read the API key; use it for tests only.
        notified: True if "Push status changed" notifications are passed to `notify`, as
            `integration_sdk.webhooks` does. Polling then waits for them, up to a minute plus
            half the age of a push, and goes back to normal if they do not arrive. With False
            the client relies on notifications only after some have arrived.
        numbers: How to read fractions: as "float", or exactly, as "decimal". This applies to
            records, to the ``data`` of push operations and to ``request()``. In a model the
            types of its fields decide.
        session: An ``aiohttp.ClientSession`` whose connector, headers and trace configs to
            use. The client never closes it. Set *ssl* and *connections* on its connector; if
            the session has a proxy, pass *proxy* too.
        middlewares, trace_configs: Passed to aiohttp.
        on_call: Called with a `CallInfo` after every call.

    Raises:
        ConfigurationError: The key or URL is missing, or an argument cannot work.

    Source: "Authentication".
    """

    _is_derived = False

    def __init__(
        self,
        api_key: Source | None = None,
        base_url: str | None = None,
        *,
        dialect: Dialect | None = None,
        timeout: float | None = 60.0,
        retry: RetryPolicy | None = _NOT_GIVEN,
        rate: float | None = None,
        per_company: int = 10,
        connections: int = 100,
        proxy: str | URL | None = None,
        ssl: SSLContext | bool = True,
        notified: bool = False,
        numbers: Literal["float", "decimal"] = "float",
        session: aiohttp.ClientSession | None = None,
        middlewares: Sequence[Any] = (),
        trace_configs: Sequence[aiohttp.TraceConfig] = (),
        on_call: Callable[[CallInfo], None] | None = None,
    ) -> None:
        # Hidden first, so that no traceback of ours shows it among its local variables.
        api_key = hide(
            _from_environment("api_key", ENVIRONMENT_KEY) if api_key is None else api_key
        )
        if base_url is None:
            base_url = _from_environment("base_url", ENVIRONMENT_URL)
        if rate is not None and not (requests.is_number(rate) and rate > 0):
            raise ConfigurationError(f"rate must be above 0 calls per second, not {rate!r}")
        requests.whole_number("per_company", per_company, 1, 10**6)
        requests.whole_number("connections", connections, 1, 10**6)
        requests.one_of("numbers", numbers, ("float", "decimal"))
        if not isinstance(dialect, Dialect | None):
            raise ConfigurationError(
                f"dialect must be a Dialect, as Dialect.published(), not {dialect!r}"
            )
        if dialect is not None:
            check_routes(dialect)
        if not isinstance(notified, bool):
            raise ConfigurationError(f"notified must be True or False, not {notified!r}")
        if not (on_call is None or callable(on_call)):
            raise ConfigurationError(f"on_call must be callable, or None, not {on_call!r}")
        dialect = dialect or Dialect.document()
        self._caller = Caller(
            dialect=dialect,
            session=Session(
                api_key=api_key,
                base_url=base_url,
                rate=rate,
                per_company=per_company,
                connections=connections,
                proxy=proxy,
                ssl=ssl,
                refuses_with_503=dialect.refuses_with_503,
                session=session,
                middlewares=middlewares,
                trace_configs=trace_configs,
                on_call=on_call,
            ),
            settings=CallOptions(timeout=timeout, retry=_policy(retry)),
            exact=numbers == "decimal",
        )
        self._retry = retry
        self._polling = Polling(self._caller, notified)

    def __repr__(self) -> str:
        caller = getattr(self, "_caller", None)  # None while __init__ raises
        where = f"{caller.session.base_url}, dialect {caller.dialect.name}" if caller else "nothing"
        return f"<Client of {where}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self, *, drain: float | None = None) -> None:
        """Close connections; later calls raise `ClientClosed`.

        Args:
            drain: Seconds to let calls under way finish; None stops them at once.
        """
        requests.seconds("drain", drain)
        if self._is_derived:
            return
        await self._polling.aclose()
        await self._caller.session.aclose(drain=drain)

    # What there is

    @property
    def dialect(self) -> Dialect:
        """The version of the service that is spoken."""
        return self._caller.dialect

    @property
    def companies(self) -> Companies:
        """All companies of the account."""
        return Companies(self._caller, "companies.list", {})

    def company(self, company_id: str) -> Company:
        """One company: its data, connections and pushes. Costs no request.

        Raises:
            ConfigurationError: The id cannot stand in a path.
        """
        return Company(self._caller, company_id)

    @property
    def profile(self) -> Profile:
        """Settings of the account."""
        return Profile(self._caller)

    # Pushes

    async def wait(
        self,
        push: PushOperation | str,
        *,
        company_id: str | None = None,
        timeout: float | None = None,
    ) -> PushOperation:
        """Wait for *push* to end and return its last state.

        Any number of callers may wait, for one push or many: one loop asks for
        all of them.

        Args:
            push: As `push` or `update` returned it, or its key.
            company_id: Whose push it is, where *push* is a key.
            timeout: Seconds to wait; None waits for as long as it is Pending.

        Returns:
            Status Success, Failed or TimedOut. Failed is an answer, not an
            exception: ``validation`` holds the reasons.

        Raises:
            ConfigurationError: *push* is no push or key, or a key without its company;
                or *timeout* is no time.
            NotFound: The service knows no such push.
            ApiError: The service does not let it be read, as when the account has expired.
            WaitExpired: *timeout* passed. The push itself goes on.
            PollingStopped: The polling loop broke. The push itself goes on; wait again.
            ClientClosed: The client was closed meanwhile.

        Source: "States and transitions", rules 1 and 2.
        """
        requests.seconds("timeout", timeout)
        if not isinstance(push, str):
            return await self._polling.poller.wait_for(push, timeout=timeout)
        if company_id is None:
            raise ConfigurationError("wait() on a key needs company_id= as well")
        requests.segment("company_id", company_id)
        requests.segment("push", push)
        return await self._polling.poller.wait(company_id, push, timeout=timeout)

    def notify(self, key: str) -> None:
        """Hint that push *key* may have changed: it is polled now. Harmless when wrong.

        Pass it to a `integration_sdk.webhooks.Receiver`: it serves every coordinator too.
        """
        self._polling.poller.notify(key)

    def coordinator(
        self,
        *,
        check: Check = None,
        **options: Unpack[CoordinatorOptions],
    ) -> Coordinator:
        """Push many records and await how each ends. Use it as ``async with``.

        Args:
            check: "options" compares each record with the push options before it
                is sent; one that they do not allow becomes the outcome INVALID. What they
                only warn of is logged by ``integration_sdk.pushes``, each kind once.
            options: See `CoordinatorOptions`.

        Raises:
            TypeError: One of *options* is none of those.
            ConfigurationError: An option cannot work.
        """
        from integration_sdk._coordinator import coordinator  # noqa: PLC0415 - for pushes only

        for name in options.keys() - coordinator.OPTIONS:
            has = ", ".join(["check", *sorted(coordinator.OPTIONS)])
            raise TypeError(f"coordinator() has no option {name!r}; it has {has}")
        # Unless told, a coordinator has a default of its own.
        given: dict[str, Any] = {}
        if self._retry is not _NOT_GIVEN:
            given["retry"] = self._caller.settings.retry
        return coordinator.Coordinator(
            self._caller.send,
            self._polling.poller,
            self.dialect,
            check=self._check if wants_check(check) else None,
            **given,
            **options,
        )

    async def _check(self, request: PushRequest) -> None:
        books = self.company(request.company_id).connection(request.connection_id)
        for_update = request.record_id is not None
        await refuse_wrong(books, request.data_type, request.record, for_update=for_update)

    # The rest

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        json: Any = None,
    ) -> Any:
        """Call what has no method here yet, and return the decoded JSON (None for no body).

        GET, HEAD and OPTIONS are repeated as reads, all else as writes.

        Args:
            method: HTTP method.
            path: Below the base URL, beginning with a slash.
            params: Query parameters.
            json: The body.

        Raises:
            ApiError: As every other call.
        """
        return await self._caller.json(custom.to_request(method, path, params=params, json=json))

    def with_options(
        self,
        *,
        timeout: float | None = _NOT_GIVEN,
        retry: RetryPolicy | None = _NOT_GIVEN,
        priority: requests.Priority | None = _NOT_GIVEN,
    ) -> Client:
        """Return a client with different settings that shares everything else with this one.

        Both use the same connections, rate limits, retry budget and polling; `wait` polls
        with the settings of the original client. Closing the new client closes nothing.

        Args:
            timeout: As for `Client`.
            retry: As for `Client`.
            priority: Which calls go first when some have to wait; None for the default of
                each kind of call.

        Raises:
            ConfigurationError: A setting cannot work.
        """
        given: dict[str, Any] = {"timeout": timeout, "retry": retry, "priority": priority}
        changes = {name: value for name, value in given.items() if value is not _NOT_GIVEN}
        other = copy(self)
        other._is_derived = True
        if "retry" in changes:
            changes["retry"], other._retry = _policy(retry), retry
        settings = evolve(self._caller.settings, **changes)
        other._caller = evolve(self._caller, settings=settings)
        return other

    def calls(self) -> AbstractContextManager[list[CallInfo]]:
        """Collect what happened in each call made inside the block: attempts, waits, ids."""
        return self._caller.session.calls()

    def stats(self) -> SessionStats:
        """Counts since the client was made, and the state of gate and window."""
        return self._caller.session.stats()

    @property
    def quota(self) -> Quota | None:
        """What the service last said of the account's limits; None until it does."""
        return self._caller.session.quota


def _policy(retry: RetryPolicy | None) -> RetryPolicy:
    if retry is _NOT_GIVEN:
        return RetryPolicy()
    return RetryPolicy.never() if retry is None else retry


def _from_environment(argument: str, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise ConfigurationError(f"pass {argument}= or set the environment variable {variable}")
    return value
