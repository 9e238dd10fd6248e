"""The data types: where they are read, how they can be pushed, what they hold.

`DATA_TYPES` is the one table of them. Addresses, options, the check of a record, what a platform
drops, and the generated books follow from it: a new data type is an entry here.

Source: "Push options description" and its rules; "Push options"; "Bank data endpoints". Assumed
beyond String and Object (the document shows no others): Array, Number, Boolean, DateTime, nested as
published; an Array's properties describe one element; what an optional parent requires is checked
only if it is given. Assumed: data types, their places, verbs and properties, as published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import evolve, frozen

_SHAPES = """
Currency: GBP|EUR|USD
Account: id!, name
Customer: id!, companyName
Supplier: id!, supplierName
Contact: id!, dataType
Named: id!, name
Line: description 4000, unitAmount! Number, quantity! Number, discountAmount Number,
  subTotal Number, taxAmount Number, totalAmount Number, accountRef Account, taxRateRef Named,
  itemRef Named
Address: type! Billing|Delivery, line1 500, city 255, country 50, postalCode 30
Link: type! Invoice|CreditNote, id!, amount! Number
Payment: amount! Number, links [Link]
Moved: description 255, netAmount! Number, currency Currency, accountRef! Account
Sale: unitPrice! Number, accountRef! Account
Balance: current Number, available Number
End: accountRef! Account, amount! Number
Booked: date! DateTime, description, amount! Number, balance Number, reconciled Boolean, reference,
  transactionType Credit|Debit, counterparty
"""

_TYPES = """
accounts company POST | Account: An account is a category in the books of a business
  nominalCode! 10, name! 150, description 4000, currency Currency,
  type! Asset|Expense|Income|Liability, status Active|Archived, isBankAccount Boolean
accountTransactions connection | Account transaction
  date! DateTime, status Reconciled|Unreconciled|Void, currency Currency, note 1000,
  totalAmount! Number, bankAccountRef Account, lines [Payment]
bankAccounts connection POST PUT | Bank account: An account at a bank
  accountName! 150, accountType Debit|Credit, nominalCode 10, sortCode 12, accountNumber 30,
  iBan 34, currency Currency, balance Number, availableBalance Number, institution 100
bankTransactions account POST | Bank transactions: Movements on a bank account
  accountId!, transactions! [Booked]
billCreditNotes company POST PUT | Bill credit note: It takes back all or part of a bill
  billCreditNoteNumber 21, supplierRef! Supplier, issueDate! DateTime, currency Currency,
  lineItems! [Line], status! Draft|Submitted, note 1000, subTotal Number, totalAmount Number
billPayments company POST DELETE | Bill payment: Money paid to a supplier
  supplierRef! Supplier, accountRef! Account, totalAmount! Number, currency Currency,
  date! DateTime, reference 255, lines [Payment]
bills company POST PUT DELETE ATTACH | Bill: A bill itemises goods or services bought
  reference 255, supplierRef! Supplier, issueDate! DateTime, dueDate! DateTime, currency Currency,
  lineItems! [Line], taxAmount Number, status! Open|Draft, note 1000, subTotal Number,
  totalAmount Number
creditNotes company POST PUT | Credit note: A credit note takes back all or part of an invoice
  creditNoteNumber 21, customerRef! Customer, issueDate! DateTime, currency Currency,
  lineItems! [Line], status! Draft|Submitted, subTotal Number, totalAmount Number
customers company POST PUT | Customer: A customer is somebody that goods or services are sold to
  customerName! 100, contactName 100, emailAddress 100, phone 30, defaultCurrency Currency,
  addresses [Address], status! Active|Archived
directCosts connection POST ATTACH | Direct cost: A direct cost is a purchase paid for at once
  reference 255, contactRef Contact, issueDate! DateTime, currency Currency, lineItems! [Line],
  taxAmount Number, subTotal Number, totalAmount Number
directIncomes connection POST ATTACH | Direct income: A sale that is paid for at once
  reference 255, contactRef Contact, issueDate! DateTime, currency Currency, lineItems! [Line],
  taxAmount Number, subTotal Number, totalAmount Number
invoices company POST PUT DELETE ATTACH | Invoice: An invoice itemises goods sold or services given
  invoiceNumber 21, customerRef! Customer, issueDate! DateTime, dueDate DateTime, currency Currency,
  currencyRate Number, lineItems! [Line], totalDiscount Number, totalTaxAmount Number,
  amountDue Number, status! Draft|Submitted, note 1000, subTotal Number, totalAmount Number
items company POST | Item: An item is a product or service that is bought or sold
  code! 30, name! 50, type Inventory|NonInventory|Service, isBillItem Boolean,
  isInvoiceItem Boolean, invoiceItem Sale, itemStatus! Active|Archived
journalEntries company POST DELETE | Journal entry: A journal entry moves amounts between accounts
  description 255, postedOn! DateTime, journalLines! [Moved]
journals company POST | Journal: Journal entries are kept in journals
  journalCode! 10, name! 100, type! 30, hasChildren Boolean
paymentMethods company | Payment method
  name! 100, type Cash|Card|Check, status Active|Archived
payments company POST | Payment: A payment is money received from a customer
  customerRef! Customer, accountRef! Account, totalAmount! Number, currency Currency,
  date! DateTime, reference 255, lines [Payment]
purchaseOrders company POST PUT | Purchase order: An order to a supplier
  purchaseOrderNumber 21, supplierRef! Supplier, issueDate! DateTime, currency Currency,
  lineItems! [Line], status! Draft|Open|Closed, note 1000, subTotal Number, totalAmount Number
salesOrders company | Sales order
  salesOrderNumber 21, customerRef! Customer, issueDate! DateTime, currency Currency,
  lineItems! [Line], status! Draft|Open|Closed, totalAmount Number
suppliers company POST PUT | Supplier: A supplier is somebody that goods or services are bought from
  supplierName! 100, contactName 100, emailAddress 100, phone 30, defaultCurrency Currency,
  addresses [Address], status! Active|Archived
taxRates company | Tax rate
  name! 100, code 30, effectiveTaxRate! Number, totalTaxRate Number, status Active|Archived
trackingCategories company | Tracking category
  name! 100, hasChildren Boolean, parentId, status Active|Archived
transfers connection POST | Transfer: Money moved between accounts
  description 255, date! DateTime, from! End, to! End
banking-accounts connection | Account at a bank
  name!, type Debit|Credit, holder Named, currency Currency, balance Balance, institution Named
banking-accountBalances connection | Balance of an account at a bank
  accountId!, date! DateTime, balance! Balance
banking-transactionCategories connection | Category of bank transactions
  name!, hasChildren Boolean, parentId, status Active|Archived
banking-transactions both | Transaction at a bank
  accountId!, amount! Number, postedDate! DateTime, description, currency Currency
commerce-customers connection | Customer of a shop
  customerName!, emailAddress, phone, defaultCurrency Currency, addresses [Address]
commerce-disputes connection | Dispute of a payment
  status! Won|Lost|Accepted, reason, amount! Number, currency Currency, dueDate DateTime
commerce-info connection | Shop
  companyName!, platform, baseCurrency Currency
commerce-locations connection | Location of a shop
  name!, address Address
commerce-orders connection | Order of a shop
  orderNumber!, currency Currency, customerRef Customer, closedDate DateTime, totalAmount Number
commerce-paymentMethods connection | Payment method of a shop
  name!, status Active|Archived
commerce-payments connection | Payment to a shop
  amount! Number, currency Currency, status Paid|Pending, dueDate DateTime
commerce-productCategories connection | Category of products
  name!, hasChildren Boolean
commerce-products connection | Product of a shop
  name!, description, price Number
commerce-taxComponents connection | Tax component of a shop
  name!, rate! Number
commerce-transactions connection | Transaction of a shop
  type Payment|Refund|Payout, totalAmount! Number, currency Currency
"""
"""A type, where its data is read (below a company, a connection, both, or a bank account), how it
can be pushed, its label and explanation; below it its properties: a name (``!``: required) and a
kind. Kinds are the published ones, a maximum length, choices, a shape, ``[...]`` for a list of it.
"""


@frozen
class Shape:
    """What one property (or the whole record) must look like.

    Args:
        choices: Allowed values, each with its label; empty for any value.
        most: Maximum length of a text; described as an informative rule.
    """

    kind: str
    name: str
    about: str = ""
    required: bool = False
    properties: Mapping[str, Shape] = {}
    choices: Mapping[str, str] = {}
    most: int | None = None


@frozen
class DataType:
    """A kind of record.

    Args:
        place: What its data is read below.
        verbs: How the published service lets it be pushed.
        shape: What a record looks like that is pushed.
    """

    name: str
    place: Literal["company", "connection", "both", "account"]
    verbs: frozenset[str]
    shape: Shape


def _label(name: str) -> str:
    if name.isupper():  # an abbreviation, such as a currency
        return name
    words = re.sub(r"(?<!^)([A-Z])", lambda letter: f" {letter[1].lower()}", name)
    return re.sub(" ref$", " reference", words[:1].upper() + words[1:])


def _properties(text: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    found = {}
    for entry in text.split(","):
        name, _, kind = entry.strip().partition(" ")
        known, label = name.rstrip("!"), _label(name.rstrip("!"))
        found[known] = evolve(_shape(kind, label, shapes), required=name.endswith("!"))
    return found


def _shape(kind: str, label: str, shapes: Mapping[str, Shape]) -> Shape:
    inner = shapes.get(kind.strip("[]"))
    if inner is not None:
        return evolve(inner, name=label, kind="Array" if kind.startswith("[") else inner.kind)
    if "|" in kind:
        return Shape("String", label, choices={value: _label(value) for value in kind.split("|")})
    if not kind or kind.isdigit():
        return Shape("String", label, most=int(kind or 0) or None)
    return Shape(kind, label)


def _entries(text: str) -> Iterator[str]:
    yield from re.split(r"\n(?! )", text.strip())


def _read_shapes() -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for entry in _entries(_SHAPES):
        name, text = re.split(": ", entry, maxsplit=1)
        single = "|" in text and "," not in text
        shapes[name] = (
            _shape(text, name, shapes)
            if single
            else Shape("Object", name, properties=_properties(text, shapes))
        )
    return shapes


def _read_types() -> dict[str, DataType]:
    shapes, types = _read_shapes(), {}
    for entry in _entries(_TYPES):
        head, text = entry.split("\n", 1)
        words, _, labels = head.partition(" | ")
        name, place, *verbs = words.split()
        label, _, about = labels.partition(": ")
        shape = Shape("Object", label, about, properties=_properties(text, shapes))
        types[name] = DataType(name, place, frozenset(verbs), shape)  # type: ignore[arg-type]  # a word of the table
    return types


DATA_TYPES: Mapping[str, DataType] = _read_types()
"""By the name that data lists and push paths use."""
BOOKED = DATA_TYPES["bankTransactions"].shape.properties["transactions"]
"""What a bank transaction looks like in the list of its account."""


def option_name(data_type: str) -> str:
    """The name of *data_type* in options and operations; the push path says ``accounts``."""
    return "chartOfAccounts" if data_type == "accounts" else data_type


def list_name(data_type: str) -> str:
    """The name of *data_type* in push paths and data lists."""
    return "accounts" if data_type == "chartOfAccounts" else data_type
