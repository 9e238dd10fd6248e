"""Seeded books: what generated records a company, or one of its connections, has.

Source: the document does not show the fields of records. Assumed: the published data model's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import Any

from attrs import define

from integration_sdk.sandbox._call import encode
from integration_sdk.sandbox._invoices import CUSTOMERS, Invoices
from integration_sdk.sandbox._records import Ids, Source, lines, midnight, money, stamps
from integration_sdk.sandbox._words import ACCOUNTS, CITIES, STREETS, THINGS, business

SIZES = {
    "customers": CUSTOMERS,
    "suppliers": 80,
    "accounts": 40,
    "items": 60,
    "bills": 400,
    "payments": 300,
    "creditNotes": 50,
    "journalEntries": 120,
    "directCosts": 90,
    "bankAccounts": 3,
}
"""How many records of each kind there are; invoices are as many as asked for."""


@define
class Few:
    """Records that are made one by one."""

    ids: Ids
    count: int
    record: Callable[[int], dict[str, Any]]

    def row(self, index: int) -> bytes:
        """One record as JSON."""
        return encode(self.record(index))

    def rows(self, start: int, stop: int) -> list[bytes]:
        """The records *start* to *stop*."""
        return [self.row(index) for index in range(start, stop)]


class Books:
    """Everything that is in one company's (or connection's) books, by kind.

    Args:
        seed: Books of the same seed and scope are the same to the byte.
        scope: What tells these books from others: a company's number, say.
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

    def source(self, kind: str) -> Source:
        """The generated records of *kind*: invoices or one of `SIZES`."""
        if kind == "invoices":
            return Invoices(
                self.invoice_ids,
                self.invoices,
                self.customer_ids,
                self.account_ids,
                self.item_ids,
                self.chance,
            )
        return Few(self._ids(kind), SIZES[kind], self._makers[kind])

    def transactions(self, account: int) -> Source:
        """The transactions of the *account*-th bank account."""
        ids = self._ids(f"bankTransactions/{account}")
        return Few(ids, 250, lambda n: self._bank_transaction(ids, account, n))

    def chance(self, what: object) -> random.Random:
        """A random source that depends on nothing but seed, scope and *what*."""
        return random.Random(f"{self._seed}/{self._scope}/{what}")

    def _ids(self, kind: str) -> Ids:
        return Ids(self._seed, self._scope, kind)

    @cached_property
    def _makers(self) -> dict[str, Callable[[int], dict[str, Any]]]:
        return {
            "customers": lambda n: self._party("customers", n),
            "suppliers": lambda n: self._party("suppliers", n),
            "accounts": self._account,
            "items": self._item,
            "bills": self._bill,
            "payments": self._payment,
            "creditNotes": self._credit_note,
            "journalEntries": self._journal_entry,
            "directCosts": self._direct_cost,
            "bankAccounts": self._bank_account,
        }

    def _party(self, kind: str, n: int) -> dict[str, Any]:
        name = business(n if kind == "customers" else n + 500)
        return {
            "id": self._ids(kind)[n],
            ("customerName" if kind == "customers" else "supplierName"): name,
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
            **stamps(n),
        }

    def _account(self, n: int) -> dict[str, Any]:
        code, name, kind, category = ACCOUNTS[n % len(ACCOUNTS)]
        return {
            "id": self.account_ids[n],
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
            **stamps(n),
        }

    def _item(self, n: int) -> dict[str, Any]:
        price = money(self.chance(("item", n)), 900)
        return {
            "id": self.item_ids[n],
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
            **stamps(n),
        }

    def _bill(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("bill", n))
        return {
            "id": self._ids("bills")[n],
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
            **stamps(n),
        }

    def _payment(self, n: int) -> dict[str, Any]:
        amount = money(self.chance(("payment", n)), 5_000)
        link = {"type": "Invoice", "id": self.invoice_ids[n % max(self.invoices, 1)]}
        return {
            "id": self._ids("payments")[n],
            "customerRef": self._customer_ref(n),
            "accountRef": {"id": self.account_ids[6], "name": ACCOUNTS[6][1]},
            "totalAmount": amount,
            "currency": "GBP",
            "currencyRate": Decimal("1.00"),
            "date": midnight(n),
            "lines": [{"amount": amount, "links": [{**link, "amount": -amount}]}],
            "reference": f"PAY-{n:06d}",
            **stamps(n),
        }

    def _credit_note(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("credit", n))
        return {
            "id": self._ids("creditNotes")[n],
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
            **stamps(n),
        }

    def _journal_entry(self, n: int) -> dict[str, Any]:
        amount = money(self.chance(("journal", n)), 2_000)
        line = {"description": "Month end", "currency": "GBP"}
        refs = [{"id": self.account_ids[k], "name": ACCOUNTS[k][1]} for k in (3, 6)]
        return {
            "id": self._ids("journalEntries")[n],
            "description": f"Month end accrual {n}",
            "postedOn": midnight(n),
            "createdOn": midnight(n),
            "journalLines": [
                {**line, "netAmount": amount, "accountRef": refs[0]},
                {**line, "netAmount": -amount, "accountRef": refs[1]},
            ],
            **stamps(n),
        }

    def _direct_cost(self, n: int) -> dict[str, Any]:
        entries, total, tax = self._lines(("cost", n))
        return {
            "id": self._ids("directCosts")[n],
            "reference": f"COST-{n:05d}",
            "contactRef": {"id": self.supplier_ids[n % 80], "dataType": "suppliers"},
            "issueDate": midnight(n),
            "currency": "GBP",
            "lineItems": entries,
            "paymentAllocations": [],
            "subTotal": total - tax,
            "taxAmount": tax,
            "totalAmount": total,
            **stamps(n),
        }

    def _bank_account(self, n: int) -> dict[str, Any]:
        balance = money(self.chance(("bank", n)), 80_000)
        return {
            "id": self.bank_ids[n],
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
            **stamps(n),
        }

    def _bank_transaction(self, ids: Ids, account: int, n: int) -> dict[str, Any]:
        chance = self.chance(("transaction", account, n))
        return {
            "id": ids[n],
            "accountId": self.bank_ids[account],
            "date": midnight(n),
            "description": f"{business(n)} {THINGS[n % len(THINGS)]}",
            "amount": money(chance, 3_000) * (1 if n % 3 else -1),
            "balance": money(chance, 80_000),
            "reconciled": n % 2 == 0,
            "reference": f"TX-{n:05d}",
            "transactionType": "Credit" if n % 3 else "Debit",
            "counterparty": business(n),
            **stamps(n),
        }

    def _customer_ref(self, n: int) -> dict[str, str]:
        return {"id": self.customer_ids[n % CUSTOMERS], "companyName": business(n % CUSTOMERS)}

    def _supplier_ref(self, n: int) -> dict[str, str]:
        return {"id": self.supplier_ids[n % 80], "supplierName": business(n % 80 + 500)}

    def _lines(self, what: object) -> tuple[list[dict[str, Any]], Decimal, Decimal]:
        return lines(self.chance(what), self.account_ids, self.item_ids)
