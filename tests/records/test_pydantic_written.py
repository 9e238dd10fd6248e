"""A pydantic object is pushed under its aliases, each Decimal as the number it is."""

from __future__ import annotations

import dataclasses
from collections import deque
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from pydantic import Field, RootModel, computed_field

from integration_sdk import PushOptions
from integration_sdk._records.codec import encode_record
from integration_sdk._records.shapes import structure
from integration_sdk.errors import InvalidRecord
from integration_sdk.models import PropertyDescription
from tests.support.pydantic_support import (
    LONG,
    Aliased,
    HoldsPlain,
    Invoice,
    Line,
    Model,
    Open,
    Plain,
    Status,
    Supplier,
    pushed,
    read,
)

INVOICE = Invoice(
    id="7",
    due_date=datetime(2023, 4, 1, 10, tzinfo=UTC),
    issued_on=date(2023, 3, 1),
    status=Status.DRAFT,
    amount_due=Decimal("1.10"),
    line_items=[Line(unit_amount=Decimal(LONG))],
    by_code={},
    tags=set("hgfedcba"),
    ref="R",
)
WRITTEN = (
    b'{"id":"7","dueDate":"2023-04-01T10:00:00Z","issuedOn":"2023-03-01","status":"Draft",'
    b'"amountDue":1.10,"customerRef":null,"lineItems":[{"unitAmount":%b,"quantity":1}],'
    b'"byCode":{},"tags":["a","b","c","d","e","f","g","h"],"ref":"R"}' % LONG.encode()
)


@attrs.frozen
class Holder:
    held_here: Any


@dataclasses.dataclass
class DataHolder:
    held_here: Any


class StructHolder(msgspec.Struct, rename="camel"):
    held_here: Any


def test_a_model_is_written_as_other_objects_are() -> None:
    """Under its aliases; Decimals are numbers, sets have an order, None and defaults are there."""
    assert encode_record(INVOICE) == WRITTEN


@pytest.mark.parametrize("holder", [Holder, DataHolder, StructHolder])
def test_a_model_is_written_alike_wherever_it_stands(holder: Any) -> None:
    """In objects of other classes, in lists and in dicts."""
    assert encode_record(holder(INVOICE)) == b'{"heldHere":%b}' % WRITTEN
    assert encode_record({"a": (INVOICE,)}) == b'{"a":[%b]}' % WRITTEN
    assert encode_record(holder([{"a": INVOICE}])) == b'{"heldHere":[{"a":%b}]}' % WRITTEN


def test_serializers_of_the_models_own_have_the_last_word() -> None:
    """Also those for JSON alone, and those that make something else of a Decimal."""

    class Own(Model):
        day: date = date(2023, 4, 1)
        as_text: Decimal = Decimal("1.5")
        as_number: Decimal = Decimal("1.5")
        secret: str = Field(default="x", exclude=True)
        several: deque[Decimal]
        nested: dict[int, tuple[Decimal, ...]]

        @pydantic.field_serializer("day", when_used="json")
        def _day(self, day: date) -> str:
            return f"{day:%d.%m.%Y}"

        @pydantic.field_serializer("as_text", when_used="json")
        def _as_text(self, amount: Decimal) -> str:
            return f"{amount:.2f}"

        @computed_field
        def twice_that(self) -> Decimal:
            return self.as_number * 2

    own = Own(several=deque([Decimal("1.10")]), nested={1: (Decimal(LONG),)})
    assert pushed(own) == {
        "day": "01.04.2023",
        "asText": "1.50",
        "asNumber": Decimal("1.5"),
        "several": [Decimal("1.10")],
        "nested": {"1": [Decimal(LONG)]},
        "twiceThat": Decimal("3.0"),
    }


def test_what_the_service_said_beyond_the_model_is_pushed_again() -> None:
    """Where the model keeps it."""
    raw = '{"amountDue":1.1,"anything":[0.125],"supplementalData":{"rate":0.125}}'

    assert encode_record(read(Open, raw)) == raw.encode()


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (Plain(), "Plain has snake_case fields and no alias"),
        ({"a": [HoldsPlain()]}, "Plain has snake_case fields and no alias"),
        (Aliased(), "pydantic dataclass with aliases"),
        (Open(anything=object()), "serialize unknown type"),
        (Open(anything=float("nan")), r"\$\.anything is nan"),
        (Open.model_construct(amount_due=Decimal("nan")), r"\$\.amountDue is NaN"),
        (RootModel[list[int]]([1]), "pydantic model"),
    ],
)
def test_what_would_be_written_wrongly_is_refused(record: Any, told: str) -> None:
    """With the class or the place that is at fault."""
    with pytest.raises(InvalidRecord, match=told):
        encode_record(record)


def test_options_judge_a_model_by_its_aliases() -> None:
    """A required ``supplierName`` is there if the model writes it."""
    name = {"type": "String", "required": True}
    described = {"type": "Object", "properties": {"supplierName": name, "status": name}}
    options = PushOptions.of(structure(described, PropertyDescription))

    assert options.check(Supplier(supplier_name="Toft")) == []
    (problem,) = options.check(Supplier(supplier_name=""))
    assert problem.path == "supplierName"
