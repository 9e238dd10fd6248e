"""Invoices, of which there may be a million.

A row is a template filled with what differs (identifier, number, customer, dates) and one of a
pool of bodies (lines, totals, status), so that lines and totals always agree and 300,000 rows a
second can be written without storing any.

Source: the document does not show the fields of invoices. Assumed: the published data model's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import Any

from attrs import define

from integration_sdk.sandbox._books.records import (
    CENT,
    DAYS,
    MASK,
    ODD,
    Ids,
    lines,
    midnight,
    stamps,
)
from integration_sdk.sandbox._books.words import business
from integration_sdk.sandbox._call import encode

CUSTOMERS = 200
POOL = 199
_STATUSES = ("Paid", "Submitted", "PartiallyPaid", "Draft", "Void")
_TEMPLATE = b'{"id":"%b%012x","invoiceNumber":"INV-%07d",%b,%b,%b}'


@define(slots=False)
class Invoices:
    """Invoices of 26 fields and about 2.1 KB.

    Args:
        ids: Their identifiers.
        count: How many there are.
        customers: Identifiers of customers, of whom there are `CUSTOMERS`.
        accounts: Identifiers of accounts.
        items: Identifiers of items.
        chance: Returns a random source for a name.
    """

    ids: Ids
    count: int
    customers: Ids
    accounts: Ids
    items: Ids
    chance: Callable[[object], random.Random]

    def row(self, index: int) -> bytes:
        """One invoice as JSON."""
        return self.rows(index, index + 1)[0]

    def rows(self, start: int, stop: int) -> list[bytes]:
        """The invoices *start* to *stop*."""
        customers, dates, bodies = self._parts
        prefix = self.ids.prefix.encode()
        return [
            _TEMPLATE
            % (
                prefix,
                n * ODD & MASK,
                n,
                customers[n * 7 % CUSTOMERS],
                dates[n % DAYS],
                bodies[n % POOL],
            )
            for n in range(start, stop)
        ]

    @cached_property
    def _parts(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        customers = [_inner({"customerRef": self._customer(n)}) for n in range(CUSTOMERS)]
        dates = [_inner(_dates(n)) for n in range(DAYS)]
        return customers, dates, [_inner(self._body(n)) for n in range(POOL)]

    def _customer(self, n: int) -> dict[str, str]:
        return {"id": self.customers[n], "companyName": business(n)}

    def _body(self, n: int) -> dict[str, Any]:
        chance = self.chance(("invoice", n))
        entries, total, tax = lines(chance, self.accounts, self.items)
        status = chance.choices(_STATUSES, weights=(50, 25, 10, 10, 5))[0]
        paid = _paid(status, total)
        return {
            "currency": chance.choice(("GBP", "GBP", "EUR", "USD")),
            "currencyRate": Decimal("1.00"),
            "lineItems": [
                {**entry, "trackingCategoryRefs": [], "isDirectIncome": False} for entry in entries
            ],
            "paymentAllocations": _allocations(paid, midnight(n, later=30)),
            "withholdingTax": [],
            "salesOrderRefs": [],
            "totalDiscount": Decimal("0.00"),
            "discountPercentage": Decimal("0.00"),
            "subTotal": total - tax,
            "additionalTaxAmount": Decimal("0.00"),
            "additionalTaxPercentage": Decimal("0.00"),
            "totalTaxAmount": tax,
            "totalAmount": total,
            "amountDue": total - paid,
            "status": status,
            "note": f"Thank you for your order. Terms: 30 days net. Batch {n}.",
            "taxInclusive": False,
            "metadata": {"isDeleted": False},
            "supplementalData": {"content": {}},
        }


def _paid(status: str, total: Decimal) -> Decimal:
    if status == "Paid":
        return total
    return (total / 2).quantize(CENT) if status == "PartiallyPaid" else Decimal("0.00")


def _allocations(paid: Decimal, day: str) -> list[dict[str, Any]]:
    if not paid:
        return []
    payment = {"currency": "GBP", "totalAmount": paid, "paidOnDate": day}
    return [{"payment": payment, "allocation": {"totalAmount": paid}}]


def _dates(n: int) -> dict[str, str]:
    return {"issueDate": midnight(n), "dueDate": midnight(n, later=30), **stamps(n)}


def _inner(record: dict[str, Any]) -> bytes:
    """The JSON of *record* without its braces."""
    return encode(record)[1:-1]
