"""The data types: what can be pushed to which platform, how that is described, checked and kept.

`DATA_TYPES` is the one table of them. Options, the check of a record, what a platform drops or
fills in, and the generated books follow from it.

Source: "Push options description" and its rules; "Push options"; "Rules" 1-4. Assumed beyond
String and Object (the document shows no others): Array, Number, Boolean, DateTime, nested as
published; an Array's properties describe one element; what an optional parent requires is checked
only if it is given. Assumed: which data types and platforms there are ("published elsewhere", What
the service does 4), and their properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from attrs import evolve, field, frozen

from integration_sdk.sandbox._call import Problem

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
# Dates as the service writes them: with Z, an offset or neither. Python reads more spellings.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


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
    required: bool = field(default=False, kw_only=True)
    properties: Mapping[str, Shape] = field(factory=dict, kw_only=True)
    choices: Mapping[str, str] = field(factory=dict, kw_only=True)
    most: int | None = field(default=None, kw_only=True)


def option_name(data_type: str) -> str:
    """The name of *data_type* in options and operations; the push path says ``accounts``."""
    return "chartOfAccounts" if data_type == "accounts" else data_type


def list_name(data_type: str) -> str:
    """The name of *data_type* in push paths and data lists."""
    return "accounts" if data_type == "chartOfAccounts" else data_type


_TABLE = """
Currency            GBP|EUR|USD       Currency: ISO 4217 code of the currency
Account             Ref name          Account
Customer            Ref companyName   Customer: The customer this is issued to
Supplier            Ref supplierName  Supplier: The supplier this comes from
Lines               Array             Line items: What is charged, one entry for each line
  description       String 4000       Description
  unitAmount!       Number            Unit amount: Price of one unit, without tax
  quantity!         Number            Quantity: Number of units
  discountAmount    Number            Discount
  subTotal          Number            Sub-total
  taxAmount         Number            Tax
  totalAmount       Number            Total
  accountRef        Account
  taxRateRef        Ref name          Tax rate
  itemRef           Ref name          Item
Totals              Object            Totals
  subTotal          Number            Sub-total: Without tax
  totalAmount       Number            Total: With tax
Party               Object            Party
  contactName       String 100        Contact
  emailAddress      String 100        E-mail address
  phone             String 30         Telephone
  defaultCurrency   Currency
  addresses         Array             Addresses: Postal addresses
    type!           Billing|Delivery  Type: What the address is for
    line1           String 500        Line 1
    city            String 255        City
    country         String 50         Country
    postalCode      String 30         Postal code
  status!           Active|Archived   Status: Whether still in use
invoices  Object  Invoice: An invoice itemises goods sold or services provided to a customer
  invoiceNumber     String 21         Invoice number: Unique in the books
  customerRef!      Customer
  issueDate!        DateTime          Issue date: The date of the invoice
  dueDate           DateTime          Due date: The date it is to be paid by
  currency          Currency
  currencyRate      Number            Currency rate
  lineItems!        Lines
  totalDiscount     Number            Discount
  totalTaxAmount    Number            Tax
  amountDue         Number            Amount due
  status!           Draft|Submitted   Status: State of the invoice
  note              String 1000       Note
  + Totals
bills  Object  Bill: A bill itemises goods or services bought from a supplier
  reference         String 255        Reference
  supplierRef!      Supplier
  issueDate!        DateTime          Issue date
  dueDate!          DateTime          Due date
  currency          Currency
  lineItems!        Lines
  taxAmount         Number            Tax
  status!           Open|Draft        Status: State of the bill
  note              String 1000       Note
  + Totals
customers  Object  Customer: A customer is somebody that goods or services are sold to
  customerName!     String 100        Customer name: Name as it appears in the books
  + Party
suppliers  Object  Supplier: A supplier is somebody that goods or services are bought from
  supplierName!     String 100        Supplier name: Name as it appears in the books
  + Party
chartOfAccounts  Object  Account: An account is a category in the books of a business
  nominalCode!      String 10         Nominal code: Unique in the books
  name!             String 150        Name
  description       String 4000       Description
  currency          Currency
  type!             Asset|Expense|Income|Liability  Type: Kind
  status            Active|Archived   Status: Whether still in use
  isBankAccount     Boolean           Bank account
items  Object  Item: An item is a product or service that is bought or sold
  code!             String 30         Code
  name!             String 50         Name
  type              Inventory|NonInventory|Service  Type: Kind of item
  isBillItem        Boolean           Can be bought
  isInvoiceItem     Boolean           Can be sold
  invoiceItem       Object            Sales details: How it is sold
    unitPrice!      Number            Unit price
    accountRef!     Account
  itemStatus!       Active|Archived   Status: Whether still in use
payments  Object  Payment: A payment is money received from a customer
  customerRef!      Customer
  accountRef!       Account
  totalAmount!      Number            Amount
  currency          Currency
  date!             DateTime          Date: When it was received
  reference         String 255        Reference
  lines             Array             Lines: What it pays for
    amount!         Number            Amount
    links           Array             Links: Documents paid
      type!         Invoice|CreditNote  Type: Kind of document
      id!           String            Identifier
      amount!       Number            Amount
creditNotes  Object  Credit note: A credit note takes back all or part of an invoice
  creditNoteNumber  String 21         Credit note number
  customerRef!      Customer
  issueDate!        DateTime          Issue date
  currency          Currency
  lineItems!        Lines
  status!           Draft|Submitted   Status: State
  + Totals
journalEntries  Object  Journal entry: A journal entry moves amounts between accounts
  description       String 255        Description
  postedOn!         DateTime          Posted on
  journalLines!     Array             Lines: Amounts moved; they add up to nothing
    description     String 255        Description
    netAmount!      Number            Amount
    currency        Currency
    accountRef!     Account
directCosts  Object  Direct cost: A direct cost is a purchase paid for at once
  reference         String 255        Reference
  contactRef        Ref name          Supplier
  issueDate!        DateTime          Issue date
  currency          Currency
  lineItems!        Lines
  taxAmount         Number            Tax
  + Totals
"""
"""A line is a name (``!``: required), a kind, and a label with an explanation; what is indented
below belongs to it. Kinds are the published ones, ``String 21`` with a maximum length, choices, a
reference and what its name is called, or a shape from above; ``+`` inserts one's properties.
"""


def _read(lines: list[str], above: dict[str, Shape], indent: int = 0) -> dict[str, Shape]:
    """Take the *lines* of this *indent*, with all below them, and return their shapes."""
    found: dict[str, Shape] = {}
    while lines and not lines[0][:indent].strip() and not lines[0].startswith(" ", indent):
        name, kind, text, *_ = [*re.split(" {2,}", lines.pop(0).strip()), "", ""]
        if name.startswith("+ "):
            found |= above[name[2:]].properties
            continue
        label, _, about = text.partition(": ")
        shape = above.get(kind) or _shape(kind, label, about, _read(lines, above, indent + 2))
        found[name.rstrip("!")] = evolve(shape, required=name.endswith("!"))
        if not indent:
            above |= found
    return found


def _shape(kind: str, label: str, about: str, properties: Mapping[str, Shape]) -> Shape:
    word, _, more = kind.partition(" ")
    if word == "Ref":
        what = f"Identifier of the {label.lower()}"
        identifier = Shape("String", "Identifier", what, required=True)
        properties = {"id": identifier, more: Shape("String", "Name")}
        return Shape("Object", f"{label} reference", about, properties=properties)
    if "|" in word:
        choices = {value: _label(value) for value in word.split("|")}
        return Shape("String", label, about, choices=choices)
    return Shape(word, label, about, properties=properties, most=int(more) if more else None)


def _label(value: str) -> str:
    if value.isupper():  # an abbreviation, such as a currency
        return value
    return "".join(f" {c.lower()}" if c.isupper() and n else c for n, c in enumerate(value))


DATA_TYPES: Mapping[str, Shape] = {
    name: shape
    for name, shape in _read(_TABLE.strip().splitlines(), {}).items()
    if name[0].islower()
}
"""What can be pushed, by the name that options and operations use."""


@frozen(eq=False)
class Platform:
    """An accounting package that a company may have connected.

    Args:
        key: The four letters by which the service identifies it.
        pace: When it answers a push.
        strict: Whether it refuses fields that its options do not list, and checks types.
        shapes: What records that can be pushed to it look like, by data type.
    """

    name: str
    key: str
    pace: Literal["later", "at once", "never"]
    strict: bool
    shapes: Mapping[str, Shape]


def _platform(
    name: str,
    key: str,
    pace: Literal["later", "at once", "never"] = "later",
    *,
    strict: bool = False,
    lacks: str = "",
    needs: str = "",
) -> Platform:
    """A platform that does not take *lacks*, and requires the properties in *needs* as well."""
    shapes = {}
    for data_type, shape in DATA_TYPES.items():
        wanted = re.findall(rf"{data_type}\.(\w+)", needs)
        more = {each: evolve(shape.properties[each], required=True) for each in wanted}
        shapes[data_type] = evolve(shape, properties={**shape.properties, **more})
    shapes.pop(lacks, None)
    return Platform(name, key, pace, strict, shapes)


_STRICT = "invoices.invoiceNumber invoices.dueDate invoices.currency bills.reference"
PLATFORMS = (
    _platform("Ledgerline", "ldgl"),
    _platform("Swiftbooks", "swft", "at once", lacks="journalEntries"),
    # Its software runs on a computer that is switched off: "States and transitions", rule 1.
    _platform("Deskledger", "dskl", "never", needs="invoices.dueDate"),
    _platform("Strictbooks", "strb", strict=True, needs=_STRICT),
)


def describe(shape: Shape, path: str = "", *, published: bool = False) -> dict[str, Any]:
    """Return the options description of *shape*, the property at the dotted *path*.

    Written as *published*, warnings name that path in PascalCase, have an ``information`` list
    beside them, and ``required`` is true at the top.
    """
    body: dict[str, Any] = {
        "type": shape.kind,
        "displayName": shape.name,
        "description": shape.about or shape.name,
    }
    if shape.properties:
        body["properties"] = {
            key: describe(child, f"{path}.{key}" if path else key, published=published)
            for key, child in shape.properties.items()
        }
    if shape.choices:
        body["options"] = [
            {"value": value, "type": "String", "displayName": label}
            for value, label in shape.choices.items()
        ]
    body["required"] = shape.required or (published and not path)
    if shape.most:
        names = path.split(".")
        field = ".".join(name[:1].upper() + name[1:] for name in names) if published else names[-1]
        rule = {"field": field, "details": f"Must be no longer than {shape.most} characters."}
        body["validation"] = {"warnings": [rule]} | ({"information": []} if published else {})
    return body


_ALWAYS = {"RequiredValidator", "OptionsValidator"}
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "String": str,
    "Boolean": bool,
    "Array": list,
    "Object": dict,
    "DateTime": str,
    "Number": (int, float, Decimal),
}


Problems = tuple[Problem, ...]


def judged(shape: Shape, record: Any, *, strict: bool) -> tuple[Problems, Problems]:
    """Return why a platform refuses *record*, and which of its fields it drops.

    Every platform checks required properties and listed choices; a *strict* one also checks
    types and lengths, and refuses unlisted fields.
    """
    found = tuple(_members(shape, record, ""))
    if strict:
        return found, ()
    unlisted = [each.item for each in found if each.validator == "UnlistedValidator"]
    dropped = "is not a field of this platform and is dropped"
    refused = tuple(each for each in found if each.validator in _ALWAYS)
    return refused, tuple(Problem(item, dropped, "Unlisted") for item in unlisted)


def _members(shape: Shape, record: Any, path: str) -> Iterator[Problem]:
    if not shape.properties:
        return
    if not isinstance(record, dict):
        yield Problem(path or "record", "must be of type Object", "TypeValidator")
        return
    for name, child in shape.properties.items():
        where, value = f"{path}.{name}" if path else name, record.get(name)
        # Assumed: "" and [] do not populate a required property. They are values for all that.
        if child.required and value in (None, "", []):
            yield Problem(where, f"{child.name} is required", "RequiredValidator")
        elif value is not None:
            yield from _value(child, value, where)
    for name, value in record.items():
        # Generated clients write every field they know, as null if it has no value.
        if name not in shape.properties and value is not None:
            where = f"{path}.{name}" if path else name
            yield Problem(where, "is not a field of this platform", "UnlistedValidator")


def _value(shape: Shape, value: Any, path: str) -> Iterator[Problem]:
    if shape.choices and not (isinstance(value, str) and value in shape.choices):
        yield Problem(path, f"must be one of: {', '.join(shape.choices)}", "OptionsValidator")
    elif not _fits(shape.kind, value):
        yield Problem(path, f"must be of type {shape.kind}", "TypeValidator")
    elif shape.most and len(value) > shape.most:
        yield Problem(path, f"must be no longer than {shape.most} characters", "LengthValidator")
    elif isinstance(value, list):
        for n, entry in enumerate(value):
            yield from _members(shape, entry, f"{path}[{n}]")
    else:
        yield from _members(shape, value, path)


def _fits(kind: str, value: Any) -> bool:
    if not isinstance(value, _KINDS[kind]) or (kind == "Number" and isinstance(value, bool)):
        return False
    return kind != "DateTime" or _is_moment(str(value))


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _MOMENT.fullmatch(text) is not None


def without_unlisted(shape: Shape, record: Any) -> Any:
    """Return *record* without the fields that *shape* does not list, as a platform keeps it."""
    if isinstance(record, list):
        return [without_unlisted(shape, entry) for entry in record]
    if not shape.properties or not isinstance(record, dict):
        return record
    return {
        key: without_unlisted(shape.properties[key], value)
        for key, value in record.items()
        if key in shape.properties
    }


_CREDIT = {"subTotal": "net", "totalTaxAmount": "tax", "totalAmount": "total"}
_DEBIT = {"subTotal": "net", "taxAmount": "tax", "totalAmount": "total"}
_DISCOUNT = {"totalDiscount": "discount", "discountPercentage": "nothing"}
TOTALS: Mapping[str, Mapping[str, str]] = {
    "invoices": {**_CREDIT, **_DISCOUNT, "amountDue": "total"},
    "creditNotes": {**_CREDIT, **_DISCOUNT, "remainingCredit": "total"},
    "bills": {**_DEBIT, "amountDue": "total"},
    "directCosts": _DEBIT,
}
"""Properties of a record that are sums over its lines, and which sums."""


def filled(data_type: str, record: dict[str, Any]) -> dict[str, Any]:
    """*record* as the platform shows it: with totals, currency and lists that it lacks.

    Source: "Push operation", ``data``: "platform-generated fields filled in". Assumed: which these
    are, as in the published data model; that they follow from the line items; that a null counts
    as omitted.
    """
    if data_type not in TOTALS:
        return record
    try:
        sums = _sums(record)
        amounts = {name: sums[which] for name, which in TOTALS[data_type].items()}
    except ArithmeticError:
        amounts = {}  # numbers too large to be money are kept as they are
    generated = {"currency": "GBP", "paymentAllocations": [], **amounts}
    return record | {name: value for name, value in generated.items() if record.get(name) is None}


def _sums(record: dict[str, Any]) -> dict[str, Decimal]:
    entries = record["lineItems"] if isinstance(record.get("lineItems"), list) else []
    lines = [entry for entry in entries if isinstance(entry, dict)]
    net = _amount(record, "subTotal", sum(map(_net, lines), ZERO))
    tax = _amount(record, "taxAmount", _total(lines, "taxAmount"))
    tax = _amount(record, "totalTaxAmount", tax)
    total = _amount(record, "totalAmount", net + tax)
    discount = _total(lines, "discountAmount")
    return {"net": net, "tax": tax, "total": total, "discount": discount, "nothing": ZERO}


def _net(line: dict[str, Any]) -> Decimal:
    amount = _amount(line, "unitAmount") * _amount(line, "quantity")
    return _amount(line, "subTotal", (amount - _amount(line, "discountAmount")).quantize(CENT))


def _total(lines: list[dict[str, Any]], name: str) -> Decimal:
    return sum((_amount(line, name) for line in lines), ZERO)


def _amount(holder: dict[str, Any], name: str, otherwise: Decimal = ZERO) -> Decimal:
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return otherwise
    return Decimal(value)
