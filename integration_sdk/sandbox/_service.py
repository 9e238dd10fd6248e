"""The service itself: what there is, and how a push begins and takes effect."""

from __future__ import annotations

import random
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime
from math import inf
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from attrs import asdict, frozen
from msgspec import Meta

from integration_sdk.sandbox._books import Books
from integration_sdk.sandbox._call import (
    LEFT_OUT,
    UNCHANGED,
    Answer,
    Clock,
    Problem,
    Refused,
    World,
    body,
    decode,
    encode,
    iso,
    new_uuid,
    not_found,
)
from integration_sdk.sandbox._pushes import Ledger, Operation, written
from integration_sdk.sandbox._records import DataSet
from integration_sdk.sandbox._schemas import (
    DATA_TYPES,
    Company,
    Connection,
    Shape,
    judged,
    list_name,
    new_company,
)

Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Duration = Annotated[float, Meta(ge=0)]
HeaderText = Annotated[str, Meta(pattern=r"^[^\r\n\0]*\Z")]
# Checked by hand: msgspec 0.22 crashes on a bounded number beside a tuple.
Span = tuple[float, float]
Seconds = float | Span
"""A fixed number of seconds, or a random one between two."""
DialectName = Literal["document", "published"]
FREE_COMPANIES, FREE_DAYS, DAY = 50, 365, 86_400
REMOVAL = date(2023, 4, 10)
"""The day after which the legacy bank endpoints are gone ("Versioning", rule 2)."""
T = TypeVar("T")


def checked(values: Mapping[str, Any], wanted: type[T]) -> T:
    """Return *values* as *wanted*; ValueError names one that cannot be, and what it can be."""
    hints = get_type_hints(wanted, include_extras=True)
    try:
        made = msgspec.convert(values, wanted, builtin_types=(date, datetime))
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$.")
        name = re.split(r"[.\[`]", place)[0]
        kinds = (hints.get(name), *get_args(hints.get(name)))
        words = [word for kind in kinds for word in get_args(kind) if isinstance(word, str | int)]
        if "enum" in why:
            why = f"Expected one of {', '.join(map(str, words))}"
        if hints.get(name) in {Span, Seconds}:
            why = why.replace("array", "(least, most)")
        raise ValueError(f"{name} cannot be {values.get(name)!r}: {why}" if name else why) from None
    for name in [name for name, kind in hints.items() if kind in {Span, Seconds}]:
        value = getattr(made, name)
        least, most = value if isinstance(value, tuple) else (value, value)
        if not 0 <= least <= most:
            raise ValueError(f"{name} cannot be {value!r}: Expected 0 <= least <= most")
    return made


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """A sandbox's settings, which `Sandbox` documents."""

    companies: Whole
    invoices: Whole
    records: Mapping[str, list[Any]]
    unlinked: Whole | None
    seed: int
    dialect: DialectName
    api_key: Annotated[str, Meta(min_length=1)] | None
    free_plan: bool
    legacy_removed: bool | date
    push_seconds: Span
    daily_quota: Whole | None
    starts: datetime | None
    remember: Whole
    host: str
    port: Annotated[int, Meta(ge=0, le=65_535)]

    @property
    def is_published(self) -> bool:
        return self.dialect == "published"

    @property
    def quota(self) -> int | None:
        """Requests a day; None where they are not counted."""
        usual = 1_000 * (1 + self.companies) if self.is_published else None
        return usual if self.daily_quota is None else self.daily_quota

    def __post_init__(self) -> None:
        for kind in self.records:
            if list_name(kind) not in DATA_TYPES:
                raise ValueError(f"records cannot have {kind!r}: give {', '.join(DATA_TYPES)}")
        if self.free_plan and self.companies > FREE_COMPANIES:
            held = f"the free plan holds {FREE_COMPANIES}"
            raise ValueError(f"companies cannot be {self.companies}: {held}")


@frozen
class Refresh:
    """A refresh of one data set, which ends by the clock. Assumed: its shape is the published."""

    id: str
    company: str
    connection: str
    data_type: str
    requested: float
    ends: float

    def body(self, now: float) -> dict[str, Any]:
        is_done = now >= self.ends
        return body(
            "refresh",
            **{**asdict(self), "requested": iso(self.requested)},
            status="Complete" if is_done else "Fetching",
            completed=iso(self.ends) if is_done else LEFT_OUT,
            progress=100 if is_done else 20,
            is_done=is_done,
        )


class Service:
    """One account of the service, all in memory."""

    def __init__(self, settings: Settings) -> None:
        seed = settings.seed
        self.settings, self.clock = settings, Clock(settings.starts)
        self.expires = self.clock.now() + FREE_DAYS * DAY if settings.free_plan else inf
        self.chance, self._keys = random.Random(f"{seed}/pushes"), random.Random(f"{seed}/keys")
        self.api_key = settings.api_key or f"sandbox-{new_uuid(random.Random(f'{seed}/key'))}"
        self.credential = b64encode(self.api_key.encode()).decode()
        count, unlinked = settings.companies, settings.unlinked
        linked = count - (count // 10 if unlinked is None else unlinked)
        founding, now = random.Random(f"{seed}/companies"), self.clock.now()
        first = [new_company(n, founding, now, linked=n < linked) for n in range(count)]
        self.companies = {company.id: company for company in first}
        self.refreshes: list[Refresh] = []
        self.ledger = Ledger(self._take_effect)
        self.sync_settings: dict[str, Any] | None = None
        self._records = {
            list_name(kind): list(map(encode, rows)) for kind, rows in settings.records.items()
        }
        self._books: dict[str, Books] = {}

    def refuse(self, refused: Refused) -> Answer:
        return refused.answer(new_uuid(self.chance))

    def row(self, operation: Operation) -> bytes:
        """Return *operation* as JSON, written only once for each state."""
        if operation.row is None:
            operation.row = written(operation, published=self.settings.is_published)
        return operation.row

    def company(self, company_id: str) -> Company:
        if company_id not in self.companies:
            raise not_found(f"there is no company {company_id}")
        return self.companies[company_id]

    def connection(self, company_id: str, connection_id: str | None = None) -> Connection:
        """That connection, or 404; without an id the first, or 409 if there is none yet."""
        connections = self.company(company_id).connections
        if connection_id is None:
            if not connections:
                raise Refused(409, "Conflict: the company is not linked, so no data is ready")
            return connections[0]
        for connection in connections:
            if connection.id == connection_id:
                return connection
        raise not_found(f"company {company_id} has no connection {connection_id}")

    def data_set(
        self,
        company_id: str,
        kind: str,
        connection_id: str | None = None,
        account_id: str | None = None,
    ) -> DataSet:
        """The records of *kind*, or the transactions of a bank account; 404 if there are none.

        Those below a connection are of the first one, unless it is named.
        """
        connection, kind = self.connection(company_id, connection_id), list_name(kind)
        place = DATA_TYPES[kind].place if kind in DATA_TYPES else "account"
        if place == "account" and account_id is None:
            raise not_found(f"there is no data type {kind}")
        books = self._books_of(company_id if place == "company" else connection.id)
        if account_id is None:
            return books.data_set(kind)
        account = books.data_set("bankAccounts").number(account_id)
        if account is None:
            raise not_found(f"there is no bank account {account_id}")
        return books.data_set("bankTransactions", account)

    def _books_of(self, scope: str) -> Books:
        if scope not in self._books:
            settings = self.settings
            self._books[scope] = Books(settings.seed, scope, settings.invoices, self._records)
        return self._books[scope]

    def refreshes_of(self, company: Company) -> list[Refresh]:
        return [one for one in self.refreshes if one.company == company.id]

    def refresh(self, connection: Connection, kind: str) -> Refresh:
        now = self.clock.now()
        ends = now + self.chance.uniform(*self.settings.push_seconds)
        names = new_uuid(self.chance), connection.company_id, connection.id, kind
        self.refreshes.append(Refresh(*names, now, ends))
        return self.refreshes[-1]

    def push(
        self,
        connection: Connection,
        data_type: str,
        verb: str,
        sent: bytes = b"",
        *,
        record_id: str | None = None,
        account_id: str | None = None,
        timeout_minutes: int | None = None,
        world: World = UNCHANGED,
        foreign: bool = False,
    ) -> Operation:
        """Accept a push and decide when and how it will end.

        Source: "States and transitions", the three rows from (none) and Pending.
        """
        now = self.clock.now()
        operation = Operation(
            key=new_uuid(self._keys),
            company=connection.company_id,
            connection=connection.id,
            data_type=list_name(data_type),
            verb=verb,
            record_id=record_id,
            account_id=account_id,
            sent=sent,
            shape=self.shape(connection, data_type),
            requested=now,
            ends=self._end(connection, now, world.push_seconds),
            timeout_minutes=timeout_minutes,
            notices=world.notices,
            foreign=foreign,
        )
        if verb in {"POST", "PUT"}:
            found = judged(operation.shape, decode(sent), strict=connection.package.strict)
            operation.problems, operation.warnings = found
        if world.push_failure is not None:
            operation.problems += (world.push_failure,)
        else:
            operation.problems += self._missing(operation)
        self.ledger.record(operation)
        self.ledger.settle(now)
        return operation

    def shape(self, connection: Connection, data_type: str) -> Shape:
        shape = connection.package.shapes.get(list_name(data_type))
        if shape is None:
            raise not_found(f"{connection.platform} cannot be pushed {data_type}")
        return shape

    def bring_online(self, connection: Connection) -> None:
        now = self.clock.now()
        self.ledger.settle(now)
        connection.online = True
        for operation in self.ledger.of_company(connection.company_id):
            if operation.connection == connection.id and operation.ends == inf:
                operation.ends = self._end(connection, now, None)
                self.ledger.note_end(operation)
        self.clock.on_change()

    def _end(self, connection: Connection, now: float, seconds: float | None) -> float:
        if not connection.online:
            return inf
        if connection.package.pace == "at once":
            return now
        usual = self.chance.uniform(*self.settings.push_seconds)
        return now + (usual if seconds is None else seconds)

    def _records_of(self, op: Operation) -> DataSet:
        return self.data_set(op.company, op.data_type, op.connection, op.account_id)

    def _missing(self, operation: Operation) -> tuple[Problem, ...]:
        try:
            records = self._records_of(operation)
        except Refused as refused:
            return (Problem("id", refused.error, "RecordExists"),)
        wanted = operation.record_id
        if wanted is None or records.get(wanted) is not None:
            return ()
        return (Problem("id", f"there is no record {wanted}", "RecordExists"),)

    def _take_effect(self, operation: Operation) -> None:
        """Apply *operation* to the books, if its record still exists."""
        operation.problems = self._missing(operation)
        if operation.problems:
            return
        before, record = operation.record_id, {}
        if operation.verb in {"POST", "PUT"}:
            record = operation.as_kept(lambda: new_uuid(self.chance))
        operation.data = encode(record)
        records = self._records_of(operation)
        match operation.verb:
            case "POST" if operation.account_id is not None:
                given = record["transactions"]  # a lenient platform does not check what it holds
                for entry in given if isinstance(given, list) else ():
                    if isinstance(entry, dict):
                        records.append({"id": new_uuid(self.chance), **entry})
            case "POST":
                records.append(record)
            case "PUT":
                records.replace(str(before), record)
            case "DELETE":
                records.delete(str(before))
