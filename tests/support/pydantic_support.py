"""Models of pydantic, as an application has them."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.alias_generators import to_camel

from integration_sdk._list.page import ItemReader
from integration_sdk._records.codec import encode_value

T = TypeVar("T")
LONG = "0.1234567890123456789012345678901"


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Status(Enum):
    DRAFT = "Draft"


class Line(Model):
    unit_amount: Decimal
    quantity: Decimal = Field(default=Decimal(1), gt=0)


class Ref(Model):
    company_name: str


class Invoice(Model):
    id: str
    due_date: datetime
    issued_on: date
    status: Status
    amount_due: Decimal
    customer_ref: Ref | None = None
    line_items: list[Line]
    by_code: dict[str, tuple[Line, ...]]
    tags: set[str]
    reference_number: str = Field(alias="ref")


class Supplier(Model):
    model_config = ConfigDict(frozen=True)

    supplier_name: str
    status: str = "Active"


class Open(Model):
    model_config = ConfigDict(extra="allow")

    amount_due: Decimal = Decimal(0)
    anything: Any = None


class Strict(Model):
    model_config = ConfigDict(strict=True)

    due_date: date
    rate: float


class Entry(Model, Generic[T]):
    first_line: T


class Amounts(RootModel[dict[str, list[Decimal]]]):
    pass


class Plain(BaseModel):
    due_date: date | None = None


class HoldsPlain(Model):
    all_of_them: dict[str, list[Plain | None]] = {}


class Later(BaseModel):
    missing: NotThere  # type: ignore[name-defined] # noqa: F821  # that is the point


@pydantic.dataclasses.dataclass
class Aliased:
    due_date: date | None = Field(default=None, alias="due")


def read(model: Any, raw: str, **options: Any) -> Any:
    return ItemReader.of(model, **options).value(msgspec.Raw(raw.encode()))


def pushed(record: Any) -> Any:
    return json.loads(encode_value(record), parse_float=Decimal)
