"""The books of companies: generated records, and lists of them that are read and changed.

Every generated record is a function of (seed, scope, index), so none has to be stored, and there
may be a million invoices. Identifiers look like UUIDs and can be turned back into the index.

Source: the document does not show the fields of records. Assumed: what can be pushed (`_schemas`)
is what a record has; bank data and what else invoices hold are the published data model's.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain
from typing import Any

from attrs import define, frozen

from integration_sdk.sandbox._call import Answer, Call, decode, encode
from integration_sdk.sandbox._lists import Chooser, Values, page_answer, wanted_page
from integration_sdk.sandbox._schemas import (
    CENT,
    DATA_TYPES,
    TOTALS,
    ZERO,
    Shape,
    filled,
    list_name,
    option_name,
)

DAYS = 1461
FIRST_DAY = date(2021, 1, 1)
CUSTOMERS = 200
SUPPLIERS = 80
TRANSACTIONS = 250
BANK_ACCOUNTS = 3
_COUNTS = {"customers": CUSTOMERS, "suppliers": SUPPLIERS, "bills": 400, "payments": 300}
_OTHERS = 60
"""How many records there are of a type that `_COUNTS` does not name; invoices are a setting."""
KINDS = tuple(map(list_name, DATA_TYPES))
"""The data lists of a company, as their paths name them."""


def _words(text: str) -> list[str]:
    return text.split("|")


_FIRST = _words(
    "Alder|Beacon|Cinder|Dovetail|Elm Street|Foxglove|Greystone|Hollow Oak|Ironbridge|Jackdaw|"
    "Kestrel|Lantern|Millrace|Northwind|Osprey|Pinecrest|Quayside|Rookery|Saltmarsh|Thistledown"
)
_SECOND = _words(
    "Analytics|Builders|Coffee Roasters|Design Studio|Electrical|Freight|Glazing|Hospitality|"
    "Interiors|Joinery"
)
_LEGAL = ("Ltd", "LLP", "Inc", "GmbH", "& Sons")
_THINGS = _words(
    "Consulting, senior engineer, day rate|Site survey and written report|"
    "Ash worktop, oiled, 3.2 m|Replacement drive belt, heavy duty|Monthly support retainer|"
    "Delivery and installation|Espresso blend, 12 x 1 kg|Brochure print run, 2,000 copies|"
    "Boiler inspection and certificate|Fleet tyre change, per vehicle|Workshop hire, half day|"
    "Photography, product range"
)
_CITIES = ("Bristol", "Leeds", "Cork", "Utrecht", "Graz", "Porto", "Malmo", "Ghent")
_STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Orchard Way", "Castle Hill")
_ACCOUNTS = (
    ("4000", "Sales of goods", "Income"),
    ("4010", "Sales of services", "Income"),
    ("5000", "Cost of goods sold", "Expense"),
    ("6100", "Rent and rates", "Expense"),
    ("6200", "Wages", "Expense"),
    ("6300", "Travel", "Expense"),
    ("1200", "Current account", "Asset"),
    ("1100", "Trade debtors", "Asset"),
    ("2100", "Trade creditors", "Liability"),
    ("2200", "Value added tax", "Liability"),
)


def _business(n: int) -> str:
    """The name of the *n*-th invented business; 1,000 of them differ."""
    first, second = _FIRST[n % len(_FIRST)], _SECOND[n // len(_FIRST) % len(_SECOND)]
    return f"{first} {second} {_LEGAL[n // (len(_FIRST) * len(_SECOND)) % len(_LEGAL)]}"


_ODD = 0x9E3779B97F4B
_MASK = (1 << 48) - 1
_ODD_INVERSE = pow(_ODD, -1, 1 << 48)


class Ids:
    """Identifiers of one kind of record: a prefix and the index, shuffled reversibly."""

    def __init__(self, *scope: object) -> None:
        h = blake2b("/".join(map(str, scope)).encode(), digest_size=10).hexdigest()
        self.prefix = f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-"

    def __getitem__(self, index: int) -> str:
        return f"{self.prefix}{index * _ODD & _MASK:012x}"

    def index(self, identifier: str) -> int | None:
        """The index behind *identifier*, or None if it is not one of these."""
        shuffled = identifier.removeprefix(self.prefix)
        if shuffled == identifier or len(shuffled) != 12:
            return None
        try:
            return int(shuffled, 16) * _ODD_INVERSE & _MASK
        except ValueError:
            return None


def _money(chance: random.Random, most: int) -> Decimal:
    """Return an amount of up to *most*, exact to the cent."""
    return Decimal(chance.randrange(100, most * 100)).scaleb(-2)


def _midnight(n: int, *, later: int = 0) -> str:
    """The start of record *n*'s day, or of a *later* one, without a zone (read as UTC)."""
    return f"{FIRST_DAY + timedelta(days=n % DAYS + later)}T00:00:00"


def _stamps(n: int) -> dict[str, str]:
    """When record *n* was changed: in the service and at the source."""
    day = _midnight(n)[:10]
    return {"modifiedDate": f"{day}T09:30:00Z", "sourceModifiedDate": f"{day}T08:15:00Z"}


@frozen
class Source:
    """Records 0 to count - 1 of one kind.

    Args:
        rows: Returns those from one number up to another, as JSON.
        index: Returns the number behind an identifier; None, or one beyond, for an unknown one.
        alike: Whether a record shows which properties all of them have.
    """

    count: int
    rows: Callable[[int, int], Sequence[bytes]]
    index: Callable[[str], int | None]
    alike: bool = True


class Books:
    """All records in one company's (or connection's) books, by kind.

    Args:
        seed: Books of the same seed and scope are identical.
        scope: Distinguishes these books from others, for example a company's number.
        invoices: How many invoices there are.
        given: Records by kind in place of generated ones; of other kinds there are none.
        searched: The lists, of all books, that keep what was read to search them.
    """

    def __init__(
        self,
        seed: int,
        scope: str,
        invoices: int,
        given: Mapping[str, Source] | None,
        searched: dict[DataSet, None],
    ) -> None:
        self._seed, self._scope = seed, scope
        self._invoices = invoices
        self._given = given
        self._ids = {kind: Ids(seed, scope, kind) for kind in (*KINDS, "bankAccounts")}
        self._searched = searched
        self._data_sets: dict[tuple[str, int], DataSet] = {}

    def has(self, kind: str) -> bool:
        """Whether there is a data list of this name."""
        return kind in KINDS or kind in (self._given or ())

    def data_set(self, kind: str, account: int = 0) -> DataSet:
        """Return the records of *kind*, with all changes made to them.

        *kind* is one that it `has`, ``bankAccounts``, or ``bankTransactions``: those of the
        *account*-th bank account.
        """
        key = kind, account
        if key not in self._data_sets:
            self._data_sets[key] = DataSet(self._source(kind, account), self._searched)
        return self._data_sets[key]

    def _source(self, kind: str, account: int) -> Source:
        if kind == "bankTransactions":
            content = partial(self._bank_transaction, account)
            return self._generated(f"{kind}/{account}", TRANSACTIONS, content)
        if kind == "bankAccounts":
            return self._generated(kind, BANK_ACCOUNTS, self._bank_account)
        if self._given is None:
            count = self._invoices if kind == "invoices" else _COUNTS.get(kind, _OTHERS)
        elif kind in self._given and self._given[kind].count:
            return self._given[kind]
        else:
            count = 0  # and a generated sample of what it would hold
        if kind == "invoices":
            return Source(count, _Invoices(self._ids[kind], self).rows, self._ids[kind].index)
        if kind in KINDS:
            return self._generated(kind, count, partial(self._record, kind))
        return self._generated(kind, count, lambda n: {})

    def _generated(self, scope: str, count: int, content: Callable[[int], Any]) -> Source:
        """Return records that *content* makes one by one."""
        ids = Ids(self._seed, self._scope, scope)

        def rows(start: int, stop: int) -> list[bytes]:
            return [encode({"id": ids[n], **content(n), **_stamps(n)}) for n in range(start, stop)]

        return Source(count, rows, ids.index)

    def chance(self, *what: object) -> random.Random:
        """Return a random source that depends only on seed, scope and *what*."""
        return random.Random(f"{self._seed}/{self._scope}/{what}")

    def customer(self, n: int) -> dict[str, str]:
        """A reference to a customer."""
        n %= CUSTOMERS
        return {"id": self._ids["customers"][n], "companyName": _business(n)}

    def lines(self, chance: random.Random) -> list[dict[str, Any]]:
        """Three or four line items, exact to the cent."""
        chosen = [chance.randrange(len(_THINGS)) for _ in range(chance.choice((3, 3, 4)))]
        return [self._line(chance, n) for n in chosen]

    def _line(self, chance: random.Random, n: int) -> dict[str, Any]:
        unit, quantity = _money(chance, 400), Decimal(chance.randrange(1, 12)).quantize(CENT)
        net = (unit * quantity).quantize(CENT)
        tax = (net / 5).quantize(CENT)
        return {
            "description": _THINGS[n],
            "unitAmount": unit,
            "quantity": quantity,
            "subTotal": net,
            "taxAmount": tax,
            "totalAmount": net + tax,
            "accountRef": self._account(n % 2),
            "taxRateRef": {"id": "VAT20", "name": "VAT at 20%", "effectiveTaxRate": 20},
            "itemRef": {"id": self._ids["items"][n], "name": _THINGS[n]},
        }

    def _account(self, n: int) -> dict[str, str]:
        return {"id": self._ids["accounts"][n], "name": _ACCOUNTS[n][1]}

    def _record(self, kind: str, n: int) -> dict[str, Any]:
        chance = self.chance(kind, n)
        properties = DATA_TYPES[option_name(kind)].properties
        known = self._known(kind, properties, n, chance)
        record = {
            name: _invented(name, shape, known, n, chance)
            for name, shape in properties.items()
            if name not in TOTALS.get(kind, ())
        }
        return filled(kind, record)

    def _known(
        self, kind: str, properties: Collection[str], n: int, chance: random.Random
    ) -> dict[str, Any]:
        """Return values of properties, on any level, that are more than their shape says."""
        code, account, account_type = _ACCOUNTS[n % len(_ACCOUNTS)]
        turn, amount = n // len(_ACCOUNTS), _money(chance, 5_000)
        supplier = _business(n % SUPPLIERS + 500)  # no customer's name
        link = {"type": "Invoice", "id": self._ids["invoices"][n % max(self._invoices, 1)]}
        known: dict[str, Any] = {
            "customerRef": self.customer(n),
            "supplierRef": {"id": self._ids["suppliers"][n % SUPPLIERS], "supplierName": supplier},
            "contactRef": {"id": self._ids["suppliers"][n % SUPPLIERS], "dataType": "suppliers"},
            "accountRef": self._account(6),
            "lineItems": self.lines(chance) if "lineItems" in properties else [],
            "amount": amount,
            "links": [{**link, "amount": -amount}],
            "journalLines": [
                {"description": "Month end", "netAmount": net, "accountRef": self._account(side)}
                for side, net in ((3, amount), (6, -amount))
            ],
            "totalAmount": amount,
            "customerName": _business(n),
            "supplierName": supplier,
            "contactName": f"Accounts team {n}",
            "emailAddress": f"accounts{n}@example.com",
            "phone": f"+44 117 496 {n:04d}",
            "addresses": [_address(n)],
            "currencyRate": Decimal("1.00"),
            "note": f"Thank you for your order. Batch {n}.",
            "reference": f"REF-{n:06d}",
            "creditNoteNumber": f"CN-{n:05d}",
            "code": f"ITEM-{n:04d}",
        }
        if kind == "accounts":
            known |= {"name": f"{account} {turn + 1}" if turn else account, "type": account_type}
            known |= {"nominalCode": str(int(code) + turn), "isBankAccount": code == "1200"}
        if kind == "items":
            known |= {"name": _THINGS[n % len(_THINGS)], "accountRef": self._account(n % 2)}
        return known

    def _bank_account(self, n: int) -> dict[str, Any]:
        balance = _money(self.chance("bank", n), 80_000)
        return {
            "accountName": ("Current account", "Savings account", "Card account")[n % 3],
            "accountType": "Credit" if n % 3 == 2 else "Debit",
            "nominalCode": str(1200 + n),
            "sortCode": f"08-71-{n:02d}",
            "accountNumber": f"{10_000_000 + n * 7919}",
            "iBan": f"GB00SAND0871{n:02d}{10_000_000 + n * 7919}",
            "currency": "GBP",
            "balance": balance,
            "availableBalance": balance,
            "institution": "Sandbank",
        }

    def _bank_transaction(self, account: int, n: int) -> dict[str, Any]:
        chance = self.chance("transaction", account, n)
        return {
            "accountId": self._ids["bankAccounts"][account],
            "date": _midnight(n),
            "description": f"{_business(n)} {_THINGS[n % len(_THINGS)]}",
            "amount": _money(chance, 3_000) * (1 if n % 3 else -1),
            "balance": _money(chance, 80_000),
            "reconciled": n % 2 == 0,
            "reference": f"TX-{n:05d}",
            "transactionType": "Credit" if n % 3 else "Debit",
            "counterparty": _business(n),
        }


def _address(n: int) -> dict[str, str]:
    return {
        "type": "Billing",
        "line1": f"{n % 90 + 1} {_STREETS[n % 5]}",
        "city": _CITIES[n % 8],
        "country": "United Kingdom",
        "postalCode": f"BS{n % 20 + 1} {n % 9 + 1}AB",
    }


def _invented(
    name: str, shape: Shape, known: Mapping[str, Any], n: int, chance: random.Random
) -> Any:
    """The *known* value of the property *name*, or one of its *shape*, for the *n*-th record."""
    if name in known:
        return known[name]
    if shape.choices:
        # The first choice is the usual one: the home currency, a record in use.
        return list(shape.choices)[-1 if n % 17 == 16 else 0]
    match shape.kind:
        case "Number":
            return _money(chance, 5_000)
        case "DateTime":
            return _midnight(n, later=30 if "due" in shape.name.lower() else 0)
        case "Boolean":
            return n % 2 == 0
        case "Object" | "Array":
            inner = {
                each: _invented(each, child, known, n, chance)
                for each, child in shape.properties.items()
            }
            return inner if shape.kind == "Object" else [inner]
        case _:
            return f"{shape.name} {n}"


_POOL = 199
_STATUSES = ("Paid", "Submitted", "PartiallyPaid", "Draft", "Void")
_TEMPLATE = b'{"id":"%b%012x","invoiceNumber":"INV-%07d",%b,%b,%b}'


@define(slots=False)
class _Invoices:
    """Invoices of 26 fields and about 2.2 KB.

    A row is a template filled with what differs (identifier, number, customer, dates) and one of a
    pool of bodies (lines, totals, status), so that lines and totals always agree and 300,000 rows
    a second can be written without storing any.
    """

    ids: Ids
    books: Books

    def rows(self, start: int, stop: int) -> list[bytes]:
        """The invoices *start* to *stop*."""
        customers, dates, bodies = self._parts
        prefix = self.ids.prefix.encode()
        return [
            _TEMPLATE
            % (
                prefix,
                n * _ODD & _MASK,
                n,
                customers[n * 7 % CUSTOMERS],
                dates[n % DAYS],
                bodies[n % _POOL],
            )
            for n in range(start, stop)
        ]

    @cached_property
    def _parts(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        customers = [_inner({"customerRef": self.books.customer(n)}) for n in range(CUSTOMERS)]
        dates = [
            _inner({"issueDate": _midnight(n), "dueDate": _midnight(n, later=30), **_stamps(n)})
            for n in range(DAYS)
        ]
        return customers, dates, [_inner(self._body(n)) for n in range(_POOL)]

    def _body(self, n: int) -> dict[str, Any]:
        chance = self.books.chance("invoice", n)
        lines = self.books.lines(chance)
        more = {"trackingCategoryRefs": [], "isDirectIncome": False}
        invoice = filled("invoices", {"lineItems": [line | more for line in lines]})
        total = invoice["totalAmount"]
        status = chance.choices(_STATUSES, weights=(50, 25, 10, 10, 5))[0]
        shares = {"Paid": total, "PartiallyPaid": (total / 2).quantize(CENT)}
        paid = shares.get(status, ZERO)
        payment = {"currency": "GBP", "totalAmount": paid, "paidOnDate": _midnight(n, later=30)}
        allocation = {"payment": payment, "allocation": {"totalAmount": paid}}
        return invoice | {
            "currency": chance.choice(("GBP", "GBP", "EUR", "USD")),
            "currencyRate": Decimal("1.00"),
            "paymentAllocations": [allocation] if paid else [],
            "withholdingTax": [],
            "salesOrderRefs": [],
            "additionalTaxAmount": ZERO,
            "additionalTaxPercentage": ZERO,
            "amountDue": total - paid,
            "status": status,
            "note": f"Thank you for your order. Terms: 30 days net. Batch {n}.",
            "taxInclusive": False,
            "metadata": {"isDeleted": False},
            "supplementalData": {"content": {}},
        }


def _inner(record: dict[str, Any]) -> bytes:
    """The JSON of *record* without its braces."""
    return encode(record)[1:-1]


SLICE = 2_000
SELECTIONS_KEPT = 4
MOST_KNOWN = 500_000
"""Records, in all lists, of which the values that were last searched for are kept."""


class DataSet:
    """The records of one kind in one company's books, in the service's order.

    Generated records are never stored: an unchanged list is just ``range(count)``. Records that
    are pushed, updated, inserted or deleted are kept separately. Filtered and ordered reads compute
    the matching positions once per query, yielding to other tasks meanwhile. What comes out is the
    list as it is at one moment all the same.
    """

    def __init__(self, source: Source, searched: dict[DataSet, None]) -> None:
        """Begin with the records of *source*; *searched* are the lists that keep values."""
        self._source, self._searched = source, searched
        self._order: range | MutableSequence[int] = range(source.count)
        self._written: dict[int, bytes] = {}
        self._index: dict[str, int] = {}
        self._added = 0
        self._replaced = False
        self._version = 0
        self._selections: dict[tuple[str | None, str | None], Sequence[int]] = {}
        self._known: tuple[list[str], dict[int, list[Values]]] = [], {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), SLICE):
            yield from map(decode, self._rows(self._order[start : start + SLICE]))

    def ids(self) -> list[str]:
        """The identifiers of all records, in order."""
        return [str(record["id"]) for record in self]

    def get(self, identifier: str) -> bytes | None:
        """The record *identifier* as JSON."""
        number = self.number(identifier)
        return None if number is None else self._row(number)

    def number(self, identifier: str) -> int | None:
        """The number of the record *identifier*, which it keeps; None if there is none."""
        number = self._index.get(identifier)
        if number is None:
            number = self._source.index(identifier)
            if number is None or number >= self._source.count:
                return None
        return number if number in self._order else None

    def sample(self) -> bytes:
        """Return an example of the records in this list, as JSON."""
        return self._source.rows(0, 1)[0]

    def append(self, record: dict[str, Any]) -> None:
        """Add *record* at the end."""
        self.insert(len(self), record)

    def insert(self, position: int, record: dict[str, Any]) -> None:
        """Add *record* before the one at *position*."""
        number = self._source.count + self._added
        self._added += 1
        self._written[number] = encode(record)
        self._index[str(record.get("id"))] = number
        if isinstance(self._order, range) and position == len(self) == number:
            self._order = range(number + 1)
        else:
            self._loose().insert(position, number)
        self._changed()

    def replace(self, identifier: str, record: dict[str, Any]) -> None:
        """Replace the record *identifier* with *record*."""
        self._write(self._there(identifier), record)

    def edit_at(self, position: int, changes: Mapping[str, Any]) -> None:
        """Change some fields of the record at *position*."""
        number = self._order[position]
        self._write(number, {**decode(self._row(number)), **changes})

    def delete(self, identifier: str) -> None:
        """Remove the record *identifier*."""
        self.delete_at(self._order.index(self._there(identifier)))

    def delete_at(self, position: int) -> None:
        """Remove the record at *position*."""
        number = self._loose().pop(position)
        self._written.pop(number, None)
        self._changed()

    def _write(self, number: int, record: dict[str, Any]) -> None:
        self._written[number] = encode(record)
        self._replaced = True
        self._changed()

    def _changed(self) -> None:
        self._version += 1
        self._forget()

    def _forget(self) -> None:
        self._selections.clear()
        self._known = [], {}

    def _loose(self) -> MutableSequence[int]:
        if isinstance(self._order, range):
            self._order = array("q", self._order)
        return self._order

    def _there(self, identifier: str) -> int:
        number = self.number(identifier)
        if number is None:
            raise LookupError(f"there is no record {identifier}")
        return number

    async def answer(self, call: Call) -> Answer:
        """Return the requested page, filtered by ``query`` and ordered by ``orderBy``."""
        page = wanted_page(call)
        order = await self._selected(call.param("query"), call.param("orderBy"))
        return page_answer(call, page, len(order), self._rows(order[page.items]))

    def _rows(self, numbers: Sequence[int]) -> Sequence[bytes]:
        if isinstance(numbers, range) and not self._replaced and numbers.stop <= self._source.count:
            return self._source.rows(numbers.start, numbers.stop)
        return [self._row(number) for number in numbers]

    def _row(self, number: int) -> bytes:
        return self._written.get(number) or self._source.rows(number, number + 1)[0]

    async def _selected(self, query: str | None, order_by: str | None) -> Sequence[int]:
        if not query and not order_by:
            return self._order
        if (query, order_by) not in self._selections:
            chosen = await self._select(query, order_by)
            self._selections[query, order_by] = chosen
            if len(self._selections) > SELECTIONS_KEPT:
                del self._selections[next(iter(self._selections))]
            return chosen
        return self._selections[query, order_by]

    async def _select(self, query: str | None, order_by: str | None) -> Sequence[int]:
        """Return the matching positions of the list as it is when this returns."""
        # Where the list changes in a pause, a record may have moved to where it was looked for
        # already. So it is read once more then, without pauses.
        for pauses in (True, False):
            version, chooser = self._version, Chooser(query, order_by)
            others = () if self._source.alike else self._source.rows(0, self._source.count)
            chooser.check([self.sample()], chain(others, self._written.values()))
            known = self._kept(chooser.names)
            for start in range(0, len(self), SLICE):
                numbers = self._order[start : start + SLICE]
                values = known.get(start) or chooser.read(self._rows(numbers))
                if self in self._searched:
                    known[start] = values
                chooser.look(numbers, values)
                if pauses:
                    await asyncio.sleep(0)
                if version != self._version:
                    break
            else:
                break
        return array("q", chooser.chosen())

    def _kept(self, names: list[str]) -> dict[int, list[Values]]:
        """Return the known values of *names*, by slice; lists searched long ago forget theirs."""
        # `changed_since` asks for each page with another query, for the same names.
        if self._known[0] != names:
            self._known = names, {}
        self._searched.pop(self, None)
        self._searched[self] = None
        while sum(map(len, self._searched)) > MOST_KNOWN:
            oldest = next(iter(self._searched))
            del self._searched[oldest]
            oldest._forget()
        return self._known[1]
