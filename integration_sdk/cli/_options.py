"""Options that several commands share: which service, and which part of a store."""

from __future__ import annotations

from typing import Annotated, Final

from attrs import field, frozen
from cyclopts import Parameter

from integration_sdk._client import ENVIRONMENT_KEY, ENVIRONMENT_URL, Client
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
ApiKey = Annotated[str | None, Parameter(env_var=ENVIRONMENT_KEY)]


@Parameter(name="*")
@frozen(kw_only=True)
class Service:
    """The service's address, the key, and the dialect it speaks."""

    base_url: Annotated[str | None, Parameter(env_var=ENVIRONMENT_URL)] = None
    """Address of the service."""

    api_key: ApiKey = field(default=None, repr=False)
    """API key. Prefer the environment variable: other users can see a command line."""

    published: Flag = False
    """The service speaks today's public API, not the interface document."""

    def client(self, *, timeout: float = 60.0, rate: float | None = None) -> Client:
        """Return a client whose calls take at most *timeout* seconds, *rate* of them a second.

        Raises:
            ConfigurationError: Address or key is missing or invalid.
        """
        if not self.base_url:
            raise ConfigurationError(f"give --base-url, or set {ENVIRONMENT_URL}")
        if not self.api_key:
            raise ConfigurationError(f"set {ENVIRONMENT_KEY}, or give --api-key")
        dialect = Dialect.published() if self.published else Dialect.document()
        return Client(self.api_key, self.base_url, dialect=dialect, timeout=timeout, rate=rate)


@Parameter(name="*")
@frozen(kw_only=True)
class Scope:
    """The part of a file or database that a command works with."""

    scope: str = "default"
    """Name of the part of the store to use. A store can hold several, each for one service."""

    schema: str = "integration_sdk"
    """Schema of the tables in a PostgreSQL database, as given to `store migrate`."""

    def store(self, where: str) -> Store:
        """Return the store at *where*, unopened. ConfigurationError: there cannot be one."""
        return Store(where, self.scope, schema=self.schema)

    def check_unused(self, option: str) -> None:
        """Refuse what has no effect without *option*, which was not given."""
        if self != WHOLE:
            raise ConfigurationError(f"--scope and --schema need {option}")


FROM_ENVIRONMENT: Final = Service()
WHOLE: Final = Scope()
