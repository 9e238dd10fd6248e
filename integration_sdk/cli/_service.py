"""Which service, and as whom: the options that every command with a network has."""

from __future__ import annotations

from typing import Annotated

from attrs import field, frozen
from cyclopts import Parameter

from integration_sdk._client import ENVIRONMENT_KEY, ENVIRONMENT_URL, Client
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
ApiKey = Annotated[str | None, Parameter(env_var=ENVIRONMENT_KEY)]


@Parameter(name="*")
@frozen(kw_only=True)
class Service:
    """The service's address, the key, and the version spoken."""

    base_url: Annotated[str | None, Parameter(env_var=ENVIRONMENT_URL)] = None
    """Where the service is."""

    api_key: ApiKey = field(default=None, repr=False)
    """Its key. Better set in the environment: a command line is there for all to read."""

    published: Flag = False
    """Speak today's public API in place of the interface document."""

    def client(self, *, timeout: float = 60.0, rate: float | None = None) -> Client:
        """Return a client whose calls take *timeout* seconds at most, *rate* of them a second.

        Raises:
            ConfigurationError: Address or key is missing, or cannot be right.
        """
        if not self.base_url:
            raise ConfigurationError(f"give --base-url, or set {ENVIRONMENT_URL}")
        if not self.api_key:
            raise ConfigurationError(f"set {ENVIRONMENT_KEY}, or give --api-key")
        dialect = Dialect.published() if self.published else Dialect.document()
        return Client(self.api_key, self.base_url, dialect=dialect, timeout=timeout, rate=rate)
