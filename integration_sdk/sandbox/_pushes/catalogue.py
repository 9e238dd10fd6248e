"""Ten data types that can be pushed, and what a record of each holds.

Source: "Push options". Assumed: which data types there are ("published elsewhere", What the
service does 4) and their properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from integration_sdk.sandbox._pushes.options import Shape

_text = partial(Shape, "String")
_number = partial(Shape, "Number")
_date = partial(Shape, "DateTime")
_flag = partial(Shape, "Boolean")


def _choice(name: str, about: str, *values: str, **more: Any) -> Shape:
    return _text(name, about, choices={value: _label(value) for value in values}, **more)


def _holder(
    kind: str, label: str, about: str, /, *, required: bool = False, **properties: Shape
) -> Shape:
    return Shape(kind, label, about, required=required, properties=properties)


_object = partial(_holder, "Object")
_array = partial(_holder, "Array")


def _ref(name: str, *, required: bool = False) -> Shape:
    identifier = _text("Identifier", f"Identifier of the {name.lower()}", required=True)
    label = f"{name} reference"
    return _object(label, "", required=required, id=identifier, name=_text("Name"))


def _label(value: str) -> str:
    if value.isupper():  # an abbreviation, such as a currency
        return value
    return "".join(f" {c.lower()}" if c.isupper() and n else c for n, c in enumerate(value))


_CURRENCY = _choice("Currency", "ISO 4217 code of the currency", "GBP", "EUR", "USD")
_CUSTOMER = _object(
    "Customer reference",
    "The customer this is issued to",
    required=True,
    id=_text("Customer identifier", required=True),
    companyName=_text("Company name"),
)
_SUPPLIER = _object(
    "Supplier reference",
    "The supplier this comes from",
    required=True,
    id=_text("Supplier identifier", required=True),
    supplierName=_text("Supplier name"),
)
_LINES = _array(
    "Line items",
    "What is charged, one entry for each line",
    required=True,
    description=_text("Description", most=4000),
    unitAmount=_number("Unit amount", "Price of one unit, without tax", required=True),
    quantity=_number("Quantity", "Number of units", required=True),
    discountAmount=_number("Discount"),
    subTotal=_number("Sub-total"),
    taxAmount=_number("Tax"),
    totalAmount=_number("Total"),
    accountRef=_ref("Account"),
    taxRateRef=_ref("Tax rate"),
    itemRef=_ref("Item"),
)
_ADDRESSES = _array(
    "Addresses",
    "Postal addresses",
    type=_choice("Type", "What the address is for", "Billing", "Delivery", required=True),
    line1=_text("Line 1", most=500),
    city=_text("City", most=255),
    country=_text("Country", most=50),
    postalCode=_text("Postal code", most=30),
)
_TOTALS: Mapping[str, Any] = {
    "subTotal": _number("Sub-total", "Without tax"),
    "totalAmount": _number("Total", "With tax"),
}


def _party(name: str, label: str) -> dict[str, Any]:
    return {
        name: _text(label, "Name as it appears in the books", required=True, most=100),
        "contactName": _text("Contact", most=100),
        "emailAddress": _text("E-mail address", most=100),
        "phone": _text("Telephone", most=30),
        "defaultCurrency": _CURRENCY,
        "addresses": _ADDRESSES,
        "status": _choice("Status", "Whether still in use", "Active", "Archived", required=True),
    }


DATA_TYPES: Mapping[str, Shape] = {
    "invoices": _object(
        "Invoice",
        "An invoice is an itemised record of goods sold or services provided to a customer",
        invoiceNumber=_text("Invoice number", "Unique in the books", most=21),
        customerRef=_CUSTOMER,
        issueDate=_date("Issue date", "The date of the invoice", required=True),
        dueDate=_date("Due date", "The date it is to be paid by"),
        currency=_CURRENCY,
        currencyRate=_number("Currency rate"),
        lineItems=_LINES,
        totalDiscount=_number("Discount"),
        totalTaxAmount=_number("Tax"),
        amountDue=_number("Amount due"),
        status=_choice("Status", "State of the invoice", "Draft", "Submitted", required=True),
        note=_text("Note", most=1000),
        **_TOTALS,
    ),
    "bills": _object(
        "Bill",
        "A bill is an itemised record of goods or services bought from a supplier",
        reference=_text("Reference", most=255),
        supplierRef=_SUPPLIER,
        issueDate=_date("Issue date", required=True),
        dueDate=_date("Due date", required=True),
        currency=_CURRENCY,
        lineItems=_LINES,
        taxAmount=_number("Tax"),
        status=_choice("Status", "State of the bill", "Open", "Draft", required=True),
        note=_text("Note", most=1000),
        **_TOTALS,
    ),
    "customers": _object(
        "Customer",
        "A customer is somebody that goods or services are sold to",
        **_party("customerName", "Customer name"),
    ),
    "suppliers": _object(
        "Supplier",
        "A supplier is somebody that goods or services are bought from",
        **_party("supplierName", "Supplier name"),
    ),
    "chartOfAccounts": _object(
        "Account",
        "An account is a category in the books of a business",
        nominalCode=_text("Nominal code", "Unique in the books", required=True, most=10),
        name=_text("Name", required=True, most=150),
        description=_text("Description", most=4000),
        currency=_CURRENCY,
        type=_choice("Type", "Kind", "Asset", "Expense", "Income", "Liability", required=True),
        status=_choice("Status", "Whether still in use", "Active", "Archived"),
        isBankAccount=_flag("Bank account"),
    ),
    "items": _object(
        "Item",
        "An item is a product or service that is bought or sold",
        code=_text("Code", required=True, most=30),
        name=_text("Name", required=True, most=50),
        type=_choice("Type", "Kind of item", "Inventory", "NonInventory", "Service"),
        isBillItem=_flag("Can be bought"),
        isInvoiceItem=_flag("Can be sold"),
        invoiceItem=_object(
            "Sales details",
            "How it is sold",
            unitPrice=_number("Unit price", required=True),
            accountRef=_ref("Account", required=True),
        ),
        itemStatus=_choice("Status", "Whether still in use", "Active", "Archived", required=True),
    ),
    "payments": _object(
        "Payment",
        "A payment is money received from a customer",
        customerRef=_CUSTOMER,
        accountRef=_ref("Account", required=True),
        totalAmount=_number("Amount", required=True),
        currency=_CURRENCY,
        date=_date("Date", "When it was received", required=True),
        reference=_text("Reference", most=255),
        lines=_array(
            "Lines",
            "What it pays for",
            amount=_number("Amount", required=True),
            links=_array(
                "Links",
                "Documents paid",
                type=_choice("Type", "Kind of document", "Invoice", "CreditNote", required=True),
                id=_text("Identifier", required=True),
                amount=_number("Amount", required=True),
            ),
        ),
    ),
    "creditNotes": _object(
        "Credit note",
        "A credit note takes back all or part of an invoice",
        creditNoteNumber=_text("Credit note number", most=21),
        customerRef=_CUSTOMER,
        issueDate=_date("Issue date", required=True),
        currency=_CURRENCY,
        lineItems=_LINES,
        status=_choice("Status", "State", "Draft", "Submitted", required=True),
        **_TOTALS,
    ),
    "journalEntries": _object(
        "Journal entry",
        "A journal entry moves amounts between accounts",
        description=_text("Description", most=255),
        postedOn=_date("Posted on", required=True),
        journalLines=_array(
            "Lines",
            "Amounts moved; they add up to nothing",
            required=True,
            description=_text("Description", most=255),
            netAmount=_number("Amount", required=True),
            currency=_CURRENCY,
            accountRef=_ref("Account", required=True),
        ),
    ),
    "directCosts": _object(
        "Direct cost",
        "A direct cost is a purchase paid for at once",
        reference=_text("Reference", most=255),
        contactRef=_ref("Supplier"),
        issueDate=_date("Issue date", required=True),
        currency=_CURRENCY,
        lineItems=_LINES,
        taxAmount=_number("Tax"),
        **_TOTALS,
    ),
}
"""What can be pushed, by the name that options and operations use."""


def option_name(data_type: str) -> str:
    """The name of *data_type* in options and operations; the push path says ``accounts``."""
    return "chartOfAccounts" if data_type == "accounts" else data_type


def list_name(data_type: str) -> str:
    """The name of *data_type* in push paths and data lists."""
    return "accounts" if data_type == "chartOfAccounts" else data_type
