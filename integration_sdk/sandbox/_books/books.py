"""Seeded books: the generated records of a company, or of one of its connections.

Source: the document does not show the fields of records. Assumed: the published data model's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from attrs import define

from integration_sdk.sandbox._books.datasets import DataSet
from integration_sdk.sandbox._books.invoices import CUSTOMERS, Invoices
from integration_sdk.sandbox._books.records import Ids, Source, lines, midnight, money, stamps
from integration_sdk.sandbox._books.words import ACCOUNTS, CITIES, STREETS, THINGS, business
from integration_sdk.sandbox._call import encode

SUPPLIERS = 80
TRANSACTIONS = 250


@define
class Few:
    """Records that are made one by one.

    Args:
        content: Makes a record, without its identifier and modification dates.
    """

    ids: Ids
    count: int
    content: Callable[[int], dict[str, Any]]

    def row(self, index: int) -> bytes:
        """One record as JSON."""
        return encode({"id": self.ids[index], **self.content(index), **stamps(index)})

    def rows(self, start: int, stop: int) -> list[bytes]:
        """The records *start* to *stop*."""
        return [self.row(index) for index in range(start, stop)]


class Books:
    """All records in one company's (or connection's) books, by kind.

    Args:
        seed: Books of the same seed and scope are identical.
        scope: Distinguishes these books from others, for example a company's number.
        invoices: How many invoices there are.
    """

    def __init__(self, seed: int, scope: str, invoices: int) -> None:
        self._seed, self._scope = seed, scope
        self.invoices = invoices
        self.customer_ids = self._ids("customers")
        self.supplier_ids = self._ids("suppliers")
        self.item_ids = self._ids("items")
        self.account_ids = self._ids("accounts")
        self.bank_ids = self._ids("bankAccounts")
        self.invoice_ids = self._ids("invoices")
        self._data_sets: dict[tuple[str, int], DataSet] = {}

    def data_set(self, kind: str, account: int = 0) -> DataSet:
        """Return the records of *kind*, with all changes made to them.

        *kind* is ``invoices``, one of `KINDS`, or ``bankTransactions``: those of the *account*-th
        bank account.
        """
        key = kind, account
        if key not in self._data_sets:
            self._data_sets[key] = DataSet(self.source(kind, account))
        return self._data_sets[key]

    def source(self, kind: str, account: int = 0) -> Source:
        """The generated records of *kind*."""
        if kind == "invoices":
            return Invoices(
                self.invoice_ids,
                self.invoices,
                self.customer_ids,
                self.account_ids,
                self.item_ids,
                self.chance,
            )
        if kind == "bankTransactions":
            ids = self._ids(f"bankTransactions/{account}")
            return Few(ids, TRANSACTIONS, partial(self._bank_transaction, account))
        count, content = KINDS[kind]
        return Few(self._ids(kind), count, partial(content, self))

    def chance(self, what: object) -> random.Random:
        """Return a random source that depends only on seed, scope and *what*."""
        return random.Random(f"{self._seed}/{self._scope}/{what}")

    def _ids(self, kind: str) -> Ids:
        return Ids(self._seed, self._scope, kind)

    def _customer(self, n: int) -> dict[str, Any]:
        return _party("customerName", business(n), n)

    def _supplier(self, n: int) -> dict[str, Any]:
        return _party("supplierName", _supplier_name(n), n)

    def _account(self, n: int) -> dict[str, Any]:
        code, name, kind, category = ACCOUNTS[n % len(ACCOUNTS)]
        return {
            "nominalCode": str(int(code) + n // len(ACCOUNTS)),
            "name": name if n < len(ACCOUNTS) else f"{name} {n // len(ACCOUNTS) + 1}",
            "description": f"{name}, as set up at the start",
            "fullyQualifiedCategory": category,
            "fullyQualifiedName": f"{category}.{name}",
            "currency": "GBP",
            "currentBalance": money(self.chance(("account", n)), 50_000),
            "type": kind,
            "status": "Active",
            "isBankAccount": "Bank" in category,
            "validDatatypeLinks": [],
        }

    def _item(self, n: int) -> dict[str, Any]:
        price = money(self.chance(("item", n)), 900)
        return {
            "code": f"ITEM-{n:04d}",
            "name": THINGS[n % len(THINGS)],
            "type": "Service" if n % 3 else "Inventory",
            "isBillItem": n % 2 == 0,
            "isInvoiceItem": True,
            "itemStatus": "Active",
            "invoiceItem": {
                "unitPrice": price,
                "accountRef": {"id": self.account_ids[n % 2], "name": ACCOUNTS[n % 2][1]},
            },
        }

    def _bill(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("bill", n))
        return {
            "reference": f"BILL-{n:06d}",
            "supplierRef": self._supplier_ref(n),
            "issueDate": midnight(n),
            "dueDate": midnight(n, later=30),
            "currency": "GBP",
            "lineItems": entries,
            "status": "Open" if n % 3 else "Paid",
            "subTotal": total - tax,
            "taxAmount": tax,
            "totalAmount": total,
            "amountDue": total if n % 3 else Decimal("0.00"),
        }

    def _payment(self, n: int) -> dict[str, Any]:
        amount = money(self.chance(("payment", n)), 5_000)
        link = {"type": "Invoice", "id": self.invoice_ids[n % max(self.invoices, 1)]}
        return {
            "customerRef": self._customer_ref(n),
            "accountRef": {"id": self.account_ids[6], "name": ACCOUNTS[6][1]},
            "totalAmount": amount,
            "currency": "GBP",
            "currencyRate": Decimal("1.00"),
            "date": midnight(n),
            "lines": [{"amount": amount, "links": [{**link, "amount": -amount}]}],
            "reference": f"PAY-{n:06d}",
        }

    def _credit_note(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("credit", n))
        return {
            "creditNoteNumber": f"CN-{n:05d}",
            "customerRef": self._customer_ref(n),
            "issueDate": midnight(n),
            "currency": "GBP",
            "lineItems": entries,
            "status": "Submitted",
            "totalDiscount": Decimal("0.00"),
            "discountPercentage": Decimal("0.00"),
            "subTotal": total - tax,
            "totalTaxAmount": tax,
            "totalAmount": total,
            "remainingCredit": total,
        }

    def _journal_entry(self, n: int) -> dict[str, Any]:
        amount = money(self.chance(("journal", n)), 2_000)
        line = {"description": "Month end", "currency": "GBP"}
        refs = [{"id": self.account_ids[k], "name": ACCOUNTS[k][1]} for k in (3, 6)]
        return {
            "description": f"Month end accrual {n}",
            "postedOn": midnight(n),
            "createdOn": midnight(n),
            "journalLines": [
                {**line, "netAmount": amount, "accountRef": refs[0]},
                {**line, "netAmount": -amount, "accountRef": refs[1]},
            ],
        }

    def _direct_cost(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("cost", n))
        return {
            "reference": f"COST-{n:05d}",
            "contactRef": {"id": self.supplier_ids[n % SUPPLIERS], "dataType": "suppliers"},
            "issueDate": midnight(n),
            "currency": "GBP",
            "lineItems": entries,
            "paymentAllocations": [],
            "subTotal": total - tax,
            "taxAmount": tax,
            "totalAmount": total,
        }

    def _bank_account(self, n: int) -> dict[str, Any]:
        balance = money(self.chance(("bank", n)), 80_000)
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
        chance = self.chance(("transaction", account, n))
        return {
            "accountId": self.bank_ids[account],
            "date": midnight(n),
            "description": f"{business(n)} {THINGS[n % len(THINGS)]}",
            "amount": money(chance, 3_000) * (1 if n % 3 else -1),
            "balance": money(chance, 80_000),
            "reconciled": n % 2 == 0,
            "reference": f"TX-{n:05d}",
            "transactionType": "Credit" if n % 3 else "Debit",
            "counterparty": business(n),
        }

    def _customer_ref(self, n: int) -> dict[str, str]:
        n %= CUSTOMERS
        return {"id": self.customer_ids[n], "companyName": business(n)}

    def _supplier_ref(self, n: int) -> dict[str, str]:
        n %= SUPPLIERS
        return {"id": self.supplier_ids[n], "supplierName": _supplier_name(n)}

    def _lines(self, what: object) -> tuple[list[dict[str, Any]], Decimal, Decimal]:
        return lines(self.chance(what), self.account_ids, self.item_ids)


def _supplier_name(n: int) -> str:
    return business(n + 500)  # no customer's name


def _party(name_property: str, name: str, n: int) -> dict[str, Any]:
    return {
        name_property: name,
        "contactName": f"Accounts team {n}",
        "emailAddress": f"accounts{n}@example.com",
        "phone": f"+44 117 496 {n:04d}",
        "defaultCurrency": "GBP",
        "addresses": [
            {
                "type": "Billing",
                "line1": f"{n % 90 + 1} {STREETS[n % 5]}",
                "city": CITIES[n % 8],
                "country": "United Kingdom",
                "postalCode": f"BS{n % 20 + 1} {n % 9 + 1}AB",
            }
        ],
        "status": "Archived" if n % 17 == 0 else "Active",
    }


KINDS: Mapping[str, tuple[int, Callable[[Books, int], dict[str, Any]]]] = {
    "customers": (CUSTOMERS, Books._customer),
    "suppliers": (SUPPLIERS, Books._supplier),
    "accounts": (40, Books._account),
    "items": (60, Books._item),
    "bills": (400, Books._bill),
    "payments": (300, Books._payment),
    "creditNotes": (50, Books._credit_note),
    "journalEntries": (120, Books._journal_entry),
    "directCosts": (90, Books._direct_cost),
    "bankAccounts": (3, Books._bank_account),
}
"""The number of records of each kind, and the method that makes one; invoices are separate."""
