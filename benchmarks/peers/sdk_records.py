"""Classes to read invoices into; in a module of their own, since defining them takes time."""

from __future__ import annotations

from decimal import Decimal

from attrs import frozen


@frozen
class Customer:
    """A member of a record."""

    id: str
    company_name: str


@frozen
class Line:
    """A line of a record."""

    description: str
    unit_amount: float
    quantity: float
    total_amount: float


@frozen
class Invoice:
    """A record as an attrs class: snake_case names, nested."""

    id: str
    invoice_number: str
    customer_ref: Customer
    issue_date: str
    due_date: str
    modified_date: str
    source_modified_date: str
    currency: str
    currency_rate: float
    line_items: list[Line]
    sub_total: float
    total_tax_amount: float
    total_amount: float
    amount_due: float
    status: str
    note: str


@frozen
class Exact:
    """The amounts of a record, exact from the digits."""

    id: str
    currency_rate: Decimal
    sub_total: Decimal
    total_tax_amount: Decimal
    total_amount: Decimal
    amount_due: Decimal


@frozen
class Brief:
    """Three fields of a record."""

    id: str
    due_date: str
    amount_due: float


MODELS = {model.__name__: model for model in (Invoice, Exact, Brief)}
