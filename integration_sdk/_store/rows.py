"""What pushes and pulls need from a store: `Rows` and `Documents`; and what every store refuses."""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from integration_sdk._store.row import Fenced, KeyClaimed, Row, Stale, State


class Rows(Protocol):
    """The rows of one scope, for one coordinator.

    A call that returns ``T | Awaitable[T]`` returns the value at once where nothing has to be
    waited for (memory); its caller awaits only an awaitable.

    Whoever is cancelled while a commit is under way does not learn whether it was made; the
    commit itself goes on to its end, and the row in the store is the truth.
    """

    durable: bool
    """Whether a later run will find the rows."""
    shared: bool
    """Whether other processes may act on the rows, too."""

    def add(self, rows: Sequence[Row]) -> list[Row] | Awaitable[list[Row]]:
        """Record new QUEUED rows, all or none; anyone may, without a lease.

        Returns:
            For each of them itself, or the live row that already has its reference (the newest
            that is not superseded; of the two in one call the first).
        """

    async def take(self, company: str) -> list[Row] | None:
        """Act for *company* from now on.

        Returns:
            Its rows that are not settled, in the order in which they were added, with payloads
            and snapshots (payloads only where the key is not known); [] if it was ours already;
            None while another live process has it. They are read after the claim has committed.
        """

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> Awaitable[None] | None:
        """Record the next versions of these rows, and new rows, all or none.

        Raises:
            Stale: One of them has a later version.
            Fenced: Another process has the lease of its company. (Rows that carry a *decision*
                made by the caller and are not SENDING may be put without the lease; see decide.)
            KeyClaimed: A push key belongs to another row.
            StoreUnavailable: It is not known whether it was recorded, or will be for some seconds.
            JournalError: Nothing was recorded. In either case, what the rows describe must not be
                sent.
        """

    def decide(self, row: Row, add: Sequence[Row] = ()) -> Awaitable[None] | None:
        """`put` of one row that a caller has decided about: needs no lease, only the version.

        The company's owner hears of it by `news`.
        """

    async def rows(
        self,
        *,
        ids: Collection[str] | None = None,
        reference: str | None = None,
        company: str | None = None,
        state: State | None = None,
        live: bool = False,
    ) -> list[Row]:
        """Return the rows for which all given conditions hold, in the order of `add`.

        live: Only those that are not settled.
        """

    async def owners(self, keys: Collection[str]) -> set[str]:
        """Return which of these push keys have an owner, whatever its state."""

    async def companies(self) -> list[str]:
        """Return the companies that have rows that are not settled."""

    def news(self) -> AsyncIterator[str]:
        """Yield the names of companies whose rows others have changed or left behind, for ever.

        With a database: on each notification, and by a slow poll beside it, since notifications
        can be lost; also companies with live rows whose lease has become free or has expired.
        Memory and files never yield.
        """

    async def release(self) -> None:
        """Give all leases back, so that another process may act at once."""


class Document(NamedTuple):
    """A small piece of state of a pull.

    version: 0 if it was never written. token: Of the claim; 0 without one.
    """

    name: str
    version: int = 0
    token: int = 0
    body: bytes | None = None


class Documents(Protocol):
    """Named documents of one scope, each changed by one process at a time."""

    async def claim(self, name: str) -> Document | None:
        """Take the document for this process, made if missing; None while a live other has it.

        Its token is larger than that of every earlier claim.
        """

    async def read(self, prefix: str) -> list[Document]:
        """Return all documents whose name begins so, by name. Their token is 0."""

    async def write(self, document: Document, body: bytes) -> Document:
        """Record a new body; the next version. A document with token 0 needs no claim.

        Raises:
            Stale: It has a later version. Fenced: Another process has claimed it since.
        """

    async def give_back(self, names: Collection[str]) -> None:
        """End these claims."""


# For those that implement them


class Commit(NamedTuple):
    """What is written, all or none.

    joins: Where a reference in *add* is taken, answer with the row that has it.
    leased: Only while the companies of *rows* are ours.
    tokens: Then those of the leases when the commit was asked for, by company as indexed.
    """

    rows: Sequence[Row] = ()
    add: Sequence[Row] = ()
    joins: bool = False
    leased: bool = False
    tokens: Mapping[str, int | None] = MappingProxyType({})


def check_next(old: Row | None, new: Row) -> None:
    """Raise Stale unless *new* is the next version of *old*; how a push ended never changes."""
    if old is None or old.version + 1 != new.version:
        raise stale(new)
    if old.state is State.FINAL and _end_of(old) != _end_of(new):
        raise stale(new)


def _end_of(row: Row) -> tuple[object, ...]:
    return row.state, row.key, row.status


def stale(row: Row) -> Stale:
    """Return the error for a row that was not written because it has a later version."""
    return Stale(f"{row} was changed by another writer since it was read.")


def key_claimed(key: str | None) -> KeyClaimed:
    """Return the error for a key that another row has."""
    return KeyClaimed(f"Push {key} belongs to another row already.")


def next_document(recorded: Document, document: Document, body: bytes) -> Document:
    """Return the next version of *document*.

    Raises:
        Fenced: Its claim is not the latest. Stale: It has a later version.
    """
    if document.token and document.token != recorded.token:
        raise fenced(document.name)
    if document.version != recorded.version:
        raise Stale(f"{document.name} was changed by another writer since it was read.")
    return document._replace(version=document.version + 1, body=body)


def fenced(name: str) -> Fenced:
    """Return the error for a company or document that another process has claimed since."""
    return Fenced(f"Another process acts for {name}.")
