"""Options that several commands share: which service, and which part of which journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from attrs import field, frozen
from cyclopts import Parameter

from integration_sdk._client import Client
from integration_sdk._options_given import ENVIRONMENT_KEY, ENVIRONMENT_URL
from integration_sdk._store.postgres import is_url
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Quiet = Annotated[Flag, Parameter(help="Print nothing on stderr but warnings and errors.")]
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

    def client(self, *, rate: float | None = None) -> Client:
        """Return a client that makes at most *rate* calls a second.

        Raises:
            ConfigurationError: Address or key is missing or invalid.
        """
        if not (self.base_url and self.api_key):
            raise ConfigurationError(
                f"set {ENVIRONMENT_URL} and {ENVIRONMENT_KEY}, or give --base-url and --api-key"
            )
        return Client(self.api_key, self.base_url, dialect=self.dialect, rate=rate)

    @property
    def dialect(self) -> Dialect:
        """What the service speaks."""
        return Dialect.published() if self.published else Dialect.document()


@Parameter(name="*")
@frozen(kw_only=True)
class Journal:
    """Where pushes are recorded."""

    journal: str | None = None
    """File that records what is sent, or the postgresql:// URL of a database (set PGPASSWORD to
    keep the password out of the command line). Push creates a file that is missing."""

    scope: str = "default"
    """Part of the journal to use. A journal can hold several, each for one service."""

    schema: str = "integration_sdk"
    """Schema of the tables in a database."""

    def store(self) -> Store | None:
        """Return it unopened; None if there is none.

        Raises:
            ConfigurationError: It cannot be a journal.
        """
        if self.journal is not None:
            return Store(self.journal, self.scope, schema=self.schema)
        if self != NO_JOURNAL:
            raise ConfigurationError("--scope and --schema need --journal")
        return None

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that does not exist, which opening would create."""
        path = self.journal
        return path is not None and not is_url(path) and not Path(path).exists()

    def existing(self) -> Store:
        """Return it unopened; ConfigurationError if it is not given, or does not exist."""
        store = self.store()
        if store is None:
            raise ConfigurationError("--journal is missing: give the file or URL as given to push")
        if self.is_missing:
            raise ConfigurationError(f"there is no journal {self.journal}")
        return store


FROM_ENVIRONMENT: Final = Service()
NO_JOURNAL: Final = Journal()
