"""The service itself: what there is, and how a push begins and takes effect."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from integration_sdk.sandbox._account import (
    Company,
    Connection,
    found_company,
)
from integration_sdk.sandbox._books import Books, DataSet, Source
from integration_sdk.sandbox._call import (
    AS_IT_IS,
    Answer,
    Call,
    Problem,
    Refused,
    World,
    decode,
    encode,
    not_found,
)
from integration_sdk.sandbox._clock import Clock
from integration_sdk.sandbox._pushes import Ledger, Operation, Wording
from integration_sdk.sandbox._schemas import Shape, judged, list_name, option_name
from integration_sdk.sandbox._settings import Settings, new_uuid


class Service:
    """One account of the service, all in memory.

    Args:
        given: Records by company and kind in place of generated ones.
    """

    def __init__(
        self, settings: Settings, given: Mapping[str, Mapping[str, Source]] | None = None
    ) -> None:
        seed = settings.seed
        self.settings, self.clock = settings, Clock(settings.starts)
        now = self.clock.now()
        self.chance, self._keys = random.Random(f"{seed}/pushes"), random.Random(f"{seed}/keys")
        founding = random.Random(f"{seed}/companies")
        known = [None] * settings.companies if given is None else list(given)
        founded = (found_company(n, founding, now, each) for n, each in enumerate(known))
        self.companies = {company.id: company for company in founded}
        self.ledger = Ledger(self._take_effect)
        self.wording = Wording(settings.connection_name, settings.published)
        self.sync_settings: dict[str, Any] | None = None
        self.credential = b64encode(settings.api_key.encode()).decode()
        self._given = given
        self._books: dict[str, Books] = {}
        self._searched: dict[DataSet, None] = {}

    def refuse(self, refused: Refused) -> Answer:
        """Return the error body of *refused*, with a correlation id of its own."""
        return refused.answer(new_uuid(self.chance))

    def has_key(self, call: Call) -> bool:
        """Whether *call* is authorized by the API key."""
        scheme, _, credential = call.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "basic" and credential.strip() == self.credential

    def company(self, company_id: str) -> Company:
        """The company *company_id*, or 404."""
        company = self.companies.get(company_id)
        if company is None:
            raise not_found(f"there is no company {company_id}")
        return company

    def connection(self, company_id: str, connection_id: str) -> Connection:
        """The connection *connection_id* of that company, or 404."""
        connection = self.company(company_id).connection(connection_id)
        if connection is None:
            raise not_found(f"company {company_id} has no connection {connection_id}")
        return connection

    def data_set(self, company_id: str, kind: str) -> DataSet:
        """The records of *kind* in a company's books; 409 until it has connected a platform."""
        company, kind = self.company(company_id), list_name(kind)
        books = self._books_of(company_id)
        if not books.has(kind):
            raise not_found(f"there is no data type {kind}")
        if not company.connections:
            raise Refused(409, f"Conflict: the data set {kind} is not ready")
        return books.data_set(kind)

    def bank_accounts(self, connection: Connection) -> DataSet:
        """The bank accounts behind *connection*."""
        return self._books_of(connection.id).data_set("bankAccounts")

    def bank_transactions(self, connection: Connection, account_id: str) -> DataSet:
        """The transactions of one bank account, or 404."""
        account = self.bank_accounts(connection).number(account_id)
        if account is None:
            raise not_found(f"there is no bank account {account_id}")
        return self._books_of(connection.id).data_set("bankTransactions", account)

    def _books_of(self, scope: str) -> Books:
        if scope not in self._books:
            given = None if self._given is None else self._given.get(scope, {})
            seed, invoices = self.settings.seed, self.settings.invoices
            self._books[scope] = Books(seed, scope, invoices, given, self._searched)
        return self._books[scope]

    def push(
        self,
        connection: Connection,
        data_type: str,
        verb: str,
        sent: bytes = b"",
        *,
        record_id: str | None = None,
        timeout_minutes: int | None = None,
        world: World = AS_IT_IS,
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
            sent=sent,
            shape=self.shape(connection, data_type),
            requested=now,
            ends=self._end(connection, now, world.push_seconds),
            timeout_minutes=timeout_minutes,
            notices=world.notices,
            foreign=foreign,
        )
        if world.late_effect is not None and operation.deadline < inf:
            operation.late, operation.ends = True, operation.deadline + world.late_effect()
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
        """Return the shape of records that can be pushed as *data_type*, or 404."""
        shape = connection.package.shapes.get(option_name(data_type))
        if shape is None:
            raise not_found(f"{connection.platform} cannot be pushed {data_type}")
        return shape

    def push_by_another(
        self, connection: Connection, data_type: str, record: Mapping[str, Any]
    ) -> Operation:
        """Push *record* as somebody else would."""
        return self.push(connection, data_type, "POST", encode(record), foreign=True)

    def bring_online(self, connection: Connection) -> None:
        """Bring an offline platform back; it then processes its pending pushes."""
        now = self.clock.now()
        self.ledger.settle(now)
        connection.online = True
        for operation in self.ledger.of_company(connection.company_id):
            if operation.connection == connection.id and operation.ends == inf:
                self.ledger.hurry(operation, self._end(connection, now, None))

    def _end(
        self, connection: Connection, now: float, seconds: Callable[[], float] | None
    ) -> float:
        if not connection.online:
            return inf
        if connection.package.pace == "at once":
            return now
        return now + (seconds() if seconds else self.chance.uniform(*self.settings.push_seconds))

    def _missing(self, operation: Operation) -> tuple[Problem, ...]:
        wanted = operation.record_id
        records = self.data_set(operation.company, operation.data_type)
        if wanted is None or records.get(wanted) is not None:
            return ()
        return (Problem("id", f"there is no record {wanted}", "RecordExists"),)

    def _take_effect(self, operation: Operation) -> None:
        """Apply *operation* to the books, if its record still exists."""
        # The company may have been deleted since the request.
        there = operation.company in self.companies
        operation.problems = self._missing(operation) if there else ()
        if operation.problems:
            return
        before, record = operation.record_id, {}
        if operation.verb in {"POST", "PUT"}:
            record = operation.as_kept(lambda: new_uuid(self.chance))
        operation.data = encode(record)
        if there:
            records = self.data_set(operation.company, operation.data_type)
            match operation.verb:
                case "POST":
                    records.append(record)
                case "PUT":
                    records.replace(str(before), record)
                case "DELETE":
                    records.delete(str(before))
