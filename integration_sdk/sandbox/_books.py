"""The books of companies: generated records, or the caller's own.

A generated record is a function of (seed, scope, kind, number). Invoices come from a template, so
that there may be a million of them and none is stored; other types are made from their schema when
they are first read.

Books are uneven on purpose, as real ones are: optional fields are missing here, and nested ones
there; one record in a thousand has a text in a number's place; a synchronisation has stamped many
records with one ``modifiedDate``.

Source: the document does not show the fields of records. Assumed: what can be pushed (`_schemas`)
is what a record has; what else invoices hold is the published data model's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from typing import Any

from integration_sdk.sandbox._call import LEFT_OUT, body, encode
from integration_sdk.sandbox._records import DataSet, Source, stored
from integration_sdk.sandbox._schemas import BOOKED, DATA_TYPES, EXAMPLES, Shape

CENT, ZERO = Decimal("0.01"), Decimal("0.00")
DAYS, FIRST_DAY = 1461, date(2021, 1, 1)
SYNCHRONISED = "2025-01-01T03:00:00"
CUSTOMERS, SUPPLIERS, BANK_ACCOUNTS, TRANSACTIONS = 200, 80, 3, 250
_COUNTS = {"customers": CUSTOMERS, "suppliers": SUPPLIERS, "bills": 400, "payments": 300}
_COUNTS |= {"bankAccounts": BANK_ACCOUNTS}
_OTHERS = 60
"""How many records there are of a type that `_COUNTS` does not name; invoices are a setting."""
THOUSAND, ODD_ONE = 1000, 23


_FIRST, _SECOND = EXAMPLES["first"].split(), EXAMPLES["second"].split()
_LEGAL = ("Ltd", "LLP", "Inc", "GmbH", "& Sons", "plc", "SA", "BV", "AG", "Oy")
_THINGS = ("Consulting, day rate", "Site survey", "Ash worktop, 3.2 m", "Drive belt", "Support")


def _business(n: int) -> str:
    return f"{_FIRST[n % 10]} {_SECOND[n // 10 % 10]} {_LEGAL[n // 100 % 10]}"


def _example(name: str, n: int) -> str:
    words = {"business": _business(n), "other": _business(500 + n), "word": _SECOND[n % 10]}
    return EXAMPLES[name].format(n=n, **words)


class Ids:
    """Identifiers of one kind of record: a prefix and the number."""

    def __init__(self, *scope: object) -> None:
        h = blake2b("/".join(map(str, scope)).encode(), digest_size=10).hexdigest()
        self.prefix = f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-"

    def __getitem__(self, number: int) -> str:
        return f"{self.prefix}{number:012x}"

    def number(self, identifier: str) -> int | None:
        tail = identifier.removeprefix(self.prefix)
        is_ours = tail != identifier and re.fullmatch("[0-9a-f]{12}", tail)
        return int(tail, 16) if is_ours else None


def _money(chance: random.Random, most: int) -> Decimal:
    return Decimal(chance.randrange(100, most * 100)).scaleb(-2)


def _midnight(n: int, *, later: int = 0) -> str:
    return f"{FIRST_DAY + timedelta(days=n % DAYS + later)}T00:00:00"


def _stamps(n: int, *, alike: bool) -> dict[str, str]:
    day = _midnight(n)[:10]
    modified = f"{SYNCHRONISED}Z" if alike or n % 4 == 1 else f"{day}T09:30:00Z"
    return {"modifiedDate": modified, "sourceModifiedDate": f"{day}T08:15:00Z"}


class Books:
    """All records in one company's, or one connection's, books; *given* in place of generated."""

    def __init__(
        self, seed: int, scope: str, invoices: int, given: Mapping[str, Sequence[bytes]]
    ) -> None:
        self._scope, self.invoices, self._given = f"{seed}/{scope}", invoices, given
        self._ids: dict[str, Ids] = {}
        self._data_sets: dict[tuple[str, int], DataSet] = {}

    def data_set(self, kind: str, account: int = 0) -> DataSet:
        """Return the records of *kind*, with all changes made to them.

        ``bankTransactions`` are those of the *account*-th bank account.
        """
        key = kind, account
        if key not in self._data_sets:
            self._data_sets[key] = DataSet(self._source(kind, account))
        return self._data_sets[key]

    def _source(self, kind: str, account: int) -> Source:
        if kind in self._given:
            return stored(self._given[kind])
        if kind == "invoices":
            template = _Invoices(self)
            return Source(self.invoices, template.rows, template.ids.number)
        count = TRANSACTIONS if kind == "bankTransactions" else _COUNTS.get(kind, _OTHERS)
        make = _Maker(self, kind, account)
        return stored([make.record(n) for n in range(count)])

    def ids(self, kind: str) -> Ids:
        if kind not in self._ids:
            self._ids[kind] = Ids(self._scope, kind)
        return self._ids[kind]

    def chance(self, *what: object) -> random.Random:
        return random.Random(f"{self._scope}/{what}")

    def customer(self, n: int) -> dict[str, str]:
        """A reference to a customer, without a name now and then."""
        reference = {"id": self.ids("customers")[n % CUSTOMERS]}
        return reference if n % 9 == 8 else reference | {"companyName": _business(n % CUSTOMERS)}

    def lines(self, chance: random.Random) -> list[dict[str, Any]]:
        return [self._line(chance) for _ in range(chance.choice((3, 3, 4)))]

    def _line(self, chance: random.Random) -> dict[str, Any]:
        n = chance.randrange(len(_THINGS))
        unit, quantity = _money(chance, 400), Decimal(chance.randrange(1, 12)).quantize(CENT)
        net = (unit * quantity).quantize(CENT)
        tax = (net / 5).quantize(CENT)
        amounts = {"unit": unit, "quantity": quantity, "net": net, "tax": tax, "total": net + tax}
        account = {"account": self.ids("accounts")[n % 2], "account_name": _example("name", n % 2)}
        item = {"id": self.ids("items")[n], "name": _example("name", n)}
        shown = LEFT_OUT if n % 5 == 4 else item
        return body("line", **amounts, **account, thing=_THINGS[n], item=shown)


class _Maker:
    """Makes the records of one kind from its schema."""

    def __init__(self, books: Books, kind: str, account: int) -> None:
        self._books, self._kind = books, kind
        is_booked = kind == "bankTransactions"
        self._shape = BOOKED if is_booked else DATA_TYPES[kind].shape
        self._account = books.ids("bankAccounts")[account]
        self._ids = books.ids(f"{kind}/{account}" if is_booked else kind)

    def record(self, n: int) -> bytes:
        chance = self._books.chance(self._kind, self._account, n)
        known = self._known(n, chance)
        record = _invented("", self._shape, known, n, chance)
        for name, one in self._shape.properties.items():
            if n % THOUSAND == ODD_ONE and one.kind == "Number" and not one.required:
                record[name] = str(record.get(name, "1.00"))
                break
        stamps = _stamps(n, alike=self._kind not in {"bills", "payments"})
        return encode({"id": self._ids[n], **record, **stamps})

    def _known(self, n: int, chance: random.Random) -> dict[str, Any]:
        """Return values of properties, on any level, that are more than their shape says."""
        ids, amount = self._books.ids, _money(chance, 5_000)
        supplier = n % SUPPLIERS
        supplier_id, name = ids("suppliers")[supplier], _example("supplierName", supplier)
        return {
            "accountId": self._account,
            "customerRef": self._books.customer(n),
            "supplierRef": {"id": supplier_id, "supplierName": name},
            "contactRef": {"id": supplier_id, "dataType": "suppliers"},
            "accountRef": {"id": ids("accounts")[6], "name": _example("name", 6)},
            "lineItems": self._books.lines(chance),
            "amount": amount,
            "totalAmount": amount,
        }


def _invented(
    name: str, shape: Shape, known: Mapping[str, Any], n: int, chance: random.Random
) -> Any:
    """The *known* value of the property *name*, or one of its *shape*, for the *n*-th record."""
    if name in known:
        return known[name]
    if name in EXAMPLES:
        return _example(name, n)
    if shape.choices:
        # The first choice is the usual one: the home currency, a record in use.
        return list(shape.choices)[-1 if n % 17 == 16 else 0]
    match shape.kind:
        case "Number":
            return _money(chance, 5_000)
        case "DateTime":
            return _midnight(n, later=30 if "due" in name.lower() else 0)
        case "Boolean":
            return n % 2 == 0
        case "Object" | "Array":
            inner = {
                each: _invented(each, child, known, n, chance)
                for each, child in shape.properties.items()
                # Every seventh record lacks a property that is not required.
                if child.required or (n + 3 * len(each)) % 7
            }
            return inner if shape.kind == "Object" else [inner]
        case _:
            return f"{shape.name} {n}"


_POOL = 199
_STATUSES = ("Paid", "Submitted", "PartiallyPaid", "Draft", "Void")
_TEMPLATE = b'{"id":"%b%012x","invoiceNumber":"INV-%07d",%b,%b,%b}'
_RATE, _RATE_AS_TEXT = b'"currencyRate":1.00', b'"currencyRate":"1.00"'


class _Invoices:
    """Invoices of up to 26 fields and about 2.2 KB.

    A row is a template filled with what differs (identifier, number, customer, dates) and one of a
    pool of bodies (lines, totals, status), so that lines and totals always agree and 300,000 rows
    a second can be written without storing any.
    """

    def __init__(self, books: Books) -> None:
        self._books, self.ids = books, books.ids("invoices")

    @cached_property
    def _parts(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        customers = [_inner({"customerRef": self._books.customer(n)}) for n in range(CUSTOMERS)]
        bodies = [_inner(self._body(n)) for n in range(_POOL)]
        return customers, [_inner(_dates(n)) for n in range(4 * DAYS)], bodies

    def rows(self, start: int, stop: int) -> list[bytes]:
        (customers, dates, bodies), prefix = self._parts, self.ids.prefix.encode()
        days = len(dates)
        rows = [
            _TEMPLATE
            % (prefix, n, n, customers[n * 7 % CUSTOMERS], dates[n % days], bodies[n % _POOL])
            for n in range(start, stop)
        ]
        for n in range(start + (ODD_ONE - start) % THOUSAND, stop, THOUSAND):
            rows[n - start] = rows[n - start].replace(_RATE, _RATE_AS_TEXT)
        return rows

    def _body(self, n: int) -> dict[str, Any]:
        chance = self._books.chance("invoice", n)
        lines = self._books.lines(chance)
        net, tax = (sum((one[name] for one in lines), ZERO) for name in ("subTotal", "taxAmount"))
        total = net + tax
        status = chance.choices(_STATUSES, weights=(50, 25, 10, 10, 5))[0]
        shares = {"Paid": total, "PartiallyPaid": (total / 2).quantize(CENT)}
        paid = shares.get(status, ZERO)
        payment = {"currency": "GBP", "totalAmount": paid, "paidOnDate": _midnight(n, later=30)}
        allocation = {"payment": payment, "allocation": {"totalAmount": paid}}
        amounts = {"net": net, "tax": tax, "total": total, "due": total - paid}
        optional = {
            "supplement": LEFT_OUT if n % 5 == 4 else {"content": {}},
            "more_tax": LEFT_OUT if n % 7 == 6 else ZERO,
        }
        return body(
            "invoice",
            **(amounts | optional),
            lines=lines,
            allocations=[allocation] if paid else [],
            currency=chance.choice(("GBP", "GBP", "EUR", "USD")),
            status=status,
            note=f"Thank you for your order. Terms: 30 days net. Batch {n}.",
        )


def _dates(n: int) -> dict[str, str]:
    due = {} if n % 11 == 10 else {"dueDate": _midnight(n, later=30)}
    return {"issueDate": _midnight(n), **due, **_stamps(n, alike=False)}


def _inner(record: dict[str, Any]) -> bytes:
    return encode(record)[1:-1]
