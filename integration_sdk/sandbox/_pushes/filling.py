"""What a platform fills in if a pushed record omits it: totals, the currency, empty lists.

Source: "Push operation", ``data``: the object as it appears in the platform, with
platform-generated fields filled in. Assumed: which these are, as in the published data model; that
they follow from the line items; that a null counts as omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from integration_sdk.sandbox._books.records import CENT

NOTHING = Decimal("0.00")
_CREDIT = {"subTotal": "net", "totalTaxAmount": "tax", "totalAmount": "total"}
_DEBIT = {"subTotal": "net", "taxAmount": "tax", "totalAmount": "total"}
_DISCOUNT = {"totalDiscount": "discount", "discountPercentage": "nothing"}
GENERATED: Mapping[str, Mapping[str, str]] = {
    "invoices": {**_CREDIT, **_DISCOUNT, "amountDue": "total"},
    "creditNotes": {**_CREDIT, **_DISCOUNT, "remainingCredit": "total"},
    "bills": {**_DEBIT, "amountDue": "total"},
    "directCosts": _DEBIT,
}
"""Properties of a record that are sums over its lines, and which sums."""


def filled(data_type: str, record: dict[str, Any]) -> dict[str, Any]:
    """*record* as the platform shows it, with what it generates."""
    if data_type not in GENERATED:
        return record
    generated = {"currency": "GBP", "paymentAllocations": [], **_amounts(data_type, record)}
    return record | {name: value for name, value in generated.items() if record.get(name) is None}


def _amounts(data_type: str, record: dict[str, Any]) -> dict[str, Decimal]:
    try:
        sums = _sums(record)
    except ArithmeticError:
        # Numbers too large to be money are kept as they are.
        return {}
    return {name: sums[which] for name, which in GENERATED[data_type].items()}


def _sums(record: dict[str, Any]) -> dict[str, Decimal]:
    entries = record["lineItems"] if isinstance(record.get("lineItems"), list) else []
    lines = [entry for entry in entries if isinstance(entry, dict)]
    net = _number(record, "subTotal", sum(map(_net, lines), NOTHING))
    tax = _number(record, "totalTaxAmount", _number(record, "taxAmount", _sum(lines, "taxAmount")))
    total = _number(record, "totalAmount", net + tax)
    discount = _sum(lines, "discountAmount")
    return {"net": net, "tax": tax, "total": total, "discount": discount, "nothing": NOTHING}


def _net(line: dict[str, Any]) -> Decimal:
    amount = _number(line, "unitAmount") * _number(line, "quantity")
    return _number(line, "subTotal", (amount - _number(line, "discountAmount")).quantize(CENT))


def _sum(lines: list[dict[str, Any]], name: str) -> Decimal:
    return sum((_number(line, name) for line in lines), NOTHING)


def _number(holder: dict[str, Any], name: str, otherwise: Decimal = NOTHING) -> Decimal:
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return otherwise
    return Decimal(value)
