"""A pydantic model reads itself, by its aliases, with every digit of the JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from datetime import UTC, date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, assert_type

import attrs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    create_model,
)
from pydantic.alias_generators import to_camel

from integration_sdk import Client, OutcomeStatus, Pager, PushRequest, PushStatus
from integration_sdk._list.page import ItemReader
from integration_sdk._records.codec import decode_json, encode_record, encode_value
from integration_sdk.errors import ConfigurationError, InvalidItem
from integration_sdk.sandbox import Sandbox
from tests.support.pager_support import Records, Serve
from tests.support.pydantic_support import (
    LONG,
    Aliased,
    Amounts,
    Entry,
    HoldsPlain,
    Invoice,
    Later,
    Line,
    Model,
    Plain,
    Ref,
    Strict,
    Supplier,
    pushed,
    read,
)

# Reading


# A float, through which pydantic reads JSON, holds 15 digits.
numbers = st.decimals(min_value=-(10**16), max_value=10**16, places=4)
texts = st.text(max_size=8)
raw_lines = st.builds(lambda n, m: {"unitAmount": n, "quantity": abs(m) + 1}, numbers, numbers)
raw_invoices = st.fixed_dictionaries(
    {
        "id": texts,
        "dueDate": st.datetimes(timezones=st.just(UTC)),
        "issuedOn": st.dates(),
        "status": st.just("Draft"),
        "amountDue": numbers,
        "customerRef": st.none() | st.fixed_dictionaries({"companyName": texts}),
        "lineItems": st.lists(raw_lines, max_size=3),
        "byCode": st.dictionaries(texts, st.lists(raw_lines, max_size=2), max_size=2),
        "tags": st.sets(texts, max_size=3),
        "ref": texts,
    }
)


@given(raw_invoices)
def test_what_was_read_is_pushed_as_the_same_json(raw: dict[str, Any]) -> None:
    """Names, dates, sets and all digits, alone and inside others."""
    body = encode_record(raw)
    invoice = read(Invoice, body.decode())

    assert type(invoice) is Invoice
    assert repr(invoice.amount_due) == repr(raw["amountDue"])
    assert decode_json(encode_record(invoice), exact=True) == decode_json(body, exact=True)
    assert encode_value({"a": [invoice]}) == b'{"a":[%b]}' % encode_record(invoice)


def test_strictness_is_the_models_own() -> None:
    """What pydantic refuses of JSON is refused; what it takes of JSON is taken."""
    assert read(Strict, '{"dueDate":"2023-04-01","rate":1.50}').due_date == date(2023, 4, 1)
    with pytest.raises(pydantic.ValidationError, match="valid number"):
        read(Strict, '{"dueDate":"2023-04-01","rate":"1"}')


def test_aliases_of_every_kind_are_pydantics_own() -> None:
    """A path reaches into the record; validation and serialization may differ."""

    class Flat(BaseModel):
        customer: str = Field(
            validation_alias=AliasPath("customerRef", "companyName"), serialization_alias="cust"
        )

    flat = read(Flat, '{"customerRef":{"companyName":"Toft"}}')
    assert (flat.customer, pushed(flat)) == ("Toft", {"cust": "Toft"})


def test_generic_and_root_models_are_models() -> None:
    """A generic one with its argument, and one that is a dict or a list."""
    entry = read(Entry[Line], '{"firstLine":{"unitAmount":0.125}}')
    amounts = read(Amounts, '{"a":[0.125,1]}')

    assert entry.first_line == Line(unit_amount=Decimal("0.125"))
    assert amounts.root == {"a": [Decimal("0.125"), 1]}
    assert pushed(amounts) == {"a": [Decimal("0.125"), 1]}
    assert read(RootModel[list[int]], "[1]").root == [1]


# Digits


class Nested(typing_extensions.TypedDict):  # typing's, before Python 3.12, pydantic refuses
    amount: Decimal


@dataclasses.dataclass(frozen=True)
class Counted:
    amount: Decimal


class Pair(NamedTuple):
    times: int
    amount: Decimal


class Discount(BaseModel):
    kind: Literal["discount"]
    amount: Decimal


class Tax(BaseModel):
    kind: Literal["tax"]
    amount: Decimal


Money = NewType("Money", Decimal)
Rounded = Annotated[Decimal, Field(decimal_places=2, max_digits=20), AfterValidator(lambda x: x)]
FIGURES = ["10.50", "1234567890123456.78", "-0.000061234567890123456", "1E+400", "100", LONG]


@pytest.mark.parametrize("numbers", ["float", "decimal"])
@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (Decimal, "%s"),
        (Decimal | None, "%s"),
        (Money, "%s"),
        (list[Decimal], "[%s]"),
        (tuple[Decimal, ...], "[%s]"),
        (deque[Decimal], "[%s]"),
        (dict[str, list[Decimal]], '{"a":[%s]}'),
        (Nested, '{"amount":%s}'),
        (Counted, '{"amount":%s}'),
        (Pair, "[1,%s]"),
        (RootModel[list[Decimal]], "[%s]"),
        (Entry[Decimal], '{"firstLine":%s}'),
        (list[Line], '[{"unitAmount":%s}]'),
        (
            Annotated[Discount | Tax, Field(discriminator="kind")],
            '{"kind":"tax","amount":%s}',
        ),
        (Annotated[str | Decimal, Field(union_mode="left_to_right")], "%s"),
    ],
)
def test_no_digit_is_lost_wherever_a_decimal_stands(
    kind: Any, wrapped: str, figure: str, numbers: str
) -> None:
    """In a field, a container or a class of any kind; alone in the model or behind an alias."""
    model = create_model("Made", amount=(kind, Field(alias="inJson")))
    made = read(model, f'{{"inJson":{wrapped % figure}}}', exact=numbers == "decimal")

    assert repr(Decimal(figure)) in repr(made)


@pytest.mark.parametrize("name", ["metadata", "default", "type", "strict", "fields", "choices"])
def test_no_digit_is_lost_whatever_a_field_is_called(name: str) -> None:
    """Also by a name that pydantic's schemas have for something else."""
    fields: Any = {name: (Decimal, ...)}
    model = create_model("Made", **fields)

    assert str(getattr(read(model, f'{{"{name}":1.10}}'), name)) == "1.10"


def test_validators_and_constraints_see_every_digit() -> None:
    """The field's own, and one before it that makes a Decimal of what it is given."""

    class Priced(BaseModel):
        total: Rounded
        own: Annotated[Decimal, BeforeValidator(lambda given: Decimal(str(given)) * 2)]

    priced = read(Priced, '{"total":1234567890123456.70,"own":1234567890123456.70}')
    assert str(priced) == "total=Decimal('1234567890123456.70') own=Decimal('2469135780246913.40')"
    with pytest.raises(pydantic.ValidationError, match="no more than 2 decimal places"):
        read(Priced, '{"total":1234567890123456.701,"own":1}')


@dataclasses.dataclass(slots=True)
class Slotted:
    anything: Any


class Mixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    amount: Decimal
    rate: float
    exact_rate: StrictFloat = Field(alias="exactRate")
    anything: Any
    both: int | float
    items: deque[Any]
    pair: tuple[int, Any]
    several: set[Any]
    held: Slotted
    pairs: dict[str, Any]


@pytest.mark.parametrize(("exact", "kind"), [(False, float), (True, Decimal)])
def test_other_fractions_are_what_the_list_was_asked_for(exact: bool, kind: type) -> None:
    """A float field has a float; Any and fields beyond the model follow ``numbers=``."""
    raw = (
        '{"amount":1.10,"rate":1.10,"exactRate":1.10,"anything":1.10,"both":1.10,"items":[1.10],'
        '"pair":[1,1.10],"several":[1.10],"held":{"anything":1.10},'
        '"pairs":{"a":1.10,"b":[{"c":1.10}]},"more":[1.10]}'
    )
    mixed = read(Mixed, raw, exact=exact)
    free = [
        mixed.anything,
        *mixed.items,
        mixed.pair[1],
        *mixed.several,
        mixed.held.anything,
        mixed.pairs["a"],
        mixed.pairs["b"][0]["c"],
        *mixed.model_extra["more"],
    ]

    assert {type(one) for one in free} == {kind}
    assert {str(one) for one in free} == {"1.10" if exact else "1.1"}
    assert {type(one) for one in (mixed.rate, mixed.exact_rate, mixed.both)} == {float}
    assert str(mixed.amount) == "1.10"


def test_a_model_without_decimals_keeps_the_digits_of_its_any() -> None:
    """If its list was asked for them."""

    class Free(BaseModel):
        anything: Any

    raw = '{"anything":[1.10]}'
    assert repr(read(Free, raw, exact=True).anything) == "[Decimal('1.10')]"
    assert read(Free, raw).anything == [1.1]


class Coded(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64")

    code: bytes
    day: date | str


class CodedAmount(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64")

    amount: Decimal
    code: bytes = b""


class StrictAmount(Strict):
    amount_due: Decimal


class InStrict(Strict):
    lines: list[Line]


class StrictField(BaseModel):
    amount: Decimal = Field(strict=True)


class DayOrText(BaseModel):
    amount: Decimal
    day: date | str | None = None


class AmountOrText(BaseModel):
    amount: Decimal | str


class StrictNatives(BaseModel):
    amount: Decimal
    name: StrictStr
    count: StrictInt
    rate: StrictFloat
    paid: StrictBool
    code: str | int | None


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (StrictAmount, "StrictAmount cannot be read: .* a strict model: set strict=False"),
        (InStrict, "a strict model"),
        (StrictField, "a strict decimal: set strict=False"),
        (RootModel[list[StrictField]], "a strict decimal"),
        (DayOrText, "the union of date and str: give it a discriminator"),
        (AmountOrText, "the union of decimal and str"),
        (CodedAmount, "val_json_bytes='base64'"),
    ],
)
def test_what_would_lose_digits_is_refused_at_once(model: Any, told: str) -> None:
    """Where pydantic reads the texts of JSON otherwise than those of Python; it says which."""
    with pytest.raises(ConfigurationError, match=told):
        ItemReader.of(model)


@pytest.mark.parametrize("exact", [False, True])
def test_what_has_no_decimals_is_read_as_pydantic_reads_json(exact: bool) -> None:
    """Strict, with a smart union, with bytes in base64: whatever numbers are asked for."""
    coded = read(Coded, '{"code":"YQ==","day":"2023-04-01"}', exact=exact)

    assert (coded.code, coded.day) == (b"a", date(2023, 4, 1))
    assert read(Strict, '{"dueDate":"2023-04-01","rate":1.50}', exact=exact).rate == 1.5


def test_strict_texts_and_numbers_are_no_obstacle() -> None:
    """JSON and Python have them in common."""
    raw = '{"amount":1.10,"name":"a","count":1,"rate":1.10,"paid":true,"code":"1"}'
    natives = read(StrictNatives, raw)

    assert str(natives.amount) == "1.10"
    assert (natives.rate, natives.code) == (1.1, "1")
    with pytest.raises(pydantic.ValidationError, match="valid string"):
        read(StrictNatives, raw.replace('"a"', "1.10"))


@attrs.frozen
class HoldsModel:
    lines: list[Line | None]


@dataclasses.dataclass
class HoldsModelToo:
    line: Line | None = None


class HoldsModelAsDict(TypedDict):
    line: Line


class HoldsModelAsStruct(msgspec.Struct, rename="camel"):
    first_line: Line | None = None


@pydantic.dataclasses.dataclass(config=ConfigDict(alias_generator=to_camel))
class Generated:
    due_date: date | None = None


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (list[Invoice], "a pydantic v2 model"),
        (BaseModel, "BaseModel cannot be read"),
        (Plain, "Plain has snake_case fields and no alias"),
        (HoldsPlain, "Plain has snake_case fields and no alias"),
        (Later, "NotThere"),
        (HoldsModel, "contains Line, a pydantic model"),
        (HoldsModelToo, "contains Line, a pydantic model"),
        (HoldsModelAsDict, "contains Line, a pydantic model"),
        (HoldsModelAsStruct, "contains Line, a pydantic model"),
        (Aliased, "pydantic dataclass with aliases"),
        (Generated, "pydantic dataclass with aliases"),
    ],
)
def test_what_would_be_read_wrongly_is_refused_at_once(model: Any, told: str) -> None:
    """Before anything is asked for, with the class that is at fault."""
    with pytest.raises(ConfigurationError, match=told):
        ItemReader.of(model)


def test_a_model_whose_names_are_the_jsons_needs_no_alias() -> None:
    """Nor does one whose snake_case name is said to be the service's."""

    class Camel(BaseModel):
        dueDate: date  # noqa: N815  # the JSON's

    class Said(BaseModel):
        due_date: date = Field(alias="due_date")

    assert pushed(read(Camel, '{"dueDate":"2023-04-01"}')) == {"dueDate": "2023-04-01"}
    assert pushed(read(Said, '{"due_date":"2023-04-01"}')) == {"due_date": "2023-04-01"}


@pydantic.dataclasses.dataclass
class Checked:
    due_date: date
    amount_due: Decimal = Field(default=Decimal(2), gt=0)
    line_tags: list[str] = Field(default_factory=list)


def test_a_pydantic_dataclass_is_a_dataclass() -> None:
    """By the names of one; its constraints are checked, and its defaults are its own."""
    checked = read(Checked, '{"dueDate":"2023-04-01"}')

    assert checked == Checked(date(2023, 4, 1))
    assert pushed(checked) == {"dueDate": "2023-04-01", "amountDue": 2, "lineTags": []}
    assert read(Checked, f'{{"dueDate":"2023-04-01","amountDue":{LONG}}}').amount_due == Decimal(
        LONG
    )
    with pytest.raises(pydantic.ValidationError, match="greater than 0"):
        read(Checked, '{"dueDate":"2023-04-01","amountDue":-1}')


# Items that do not fit


def service() -> Records:
    """Of 300 records, one in each page has a third line without a quantity."""

    def record(index: int) -> dict[str, Any]:
        quantities = [1, 1, 0 if index % 100 == 50 else 1]
        return {
            "accountName": str(index),
            "lineItems": [{"unitAmount": 1, "quantity": quantity} for quantity in quantities],
        }

    return Records(items=300, after=lambda _: 0, records=record)


class Account(Model):
    account_name: str
    line_items: list[Line]


async def test_an_item_that_does_not_fit_says_where_and_what_it_is(serve: Serve) -> None:
    """Page, index, path and raw record, and pydantic's own error as the cause."""
    with pytest.raises(
        InvalidItem, match=r"page 1, item 50: Input should be greater than 0 at"
    ) as e:
        await (await serve(service())).list(model=Account).collect()

    error = e.value
    assert (error.page, error.index) == (1, 50)
    assert error.item_path == "$.lineItems[2].quantity"
    assert json.loads(error.raw)["accountName"] == "50"
    assert isinstance(error.__cause__, pydantic.ValidationError)


async def test_items_that_do_not_fit_can_be_put_aside(serve: Serve) -> None:
    """``on_invalid`` gets each, the others come."""
    aside: list[InvalidItem] = []
    read = await (await serve(service())).list(model=Account, on_invalid=aside.append).collect()

    assert [one.account_name for one in read] == [str(i) for i in range(300) if i % 100 != 50]
    assert [(one.page, one.item_path) for one in aside] == [
        (page, "$.lineItems[2].quantity") for page in (1, 2, 3)
    ]


async def test_several_problems_are_counted_and_a_validators_own_error_is_told(
    serve: Serve,
) -> None:
    """The first is named; what is no error of pydantic's is shown as it is."""

    class Doubtful(BaseModel):
        id: int

        @pydantic.field_validator("id")
        @classmethod
        def look_up(cls, value: int) -> int:
            return {0: 0}[value]

    with pytest.raises(InvalidItem, match=r"item 0: Field required \(and 9 more\) at \$\.id;") as e:
        await (await serve(Records(records=lambda _: {"tags": 1}))).list(model=Required).first()
    assert e.value.item_path == "$.id"
    with pytest.raises(InvalidItem, match=r"item 1: 1 at \$;"):
        await (await serve(Records())).list(model=Doubtful).collect()


class Required(Invoice):
    customer_ref: Ref


# All of it


@pytest.mark.integration_sandbox(companies=1, push_seconds=(0.01, 0.05))
async def test_a_model_is_read_and_pushed_through_every_door(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """A list, ``push``, ``update``, a check and a coordinator that looks for its natural key."""
    (held,) = integration_sandbox.companies
    company = integration_client.company(held.id)
    books = company.connection(held.connections[0].id)
    suppliers = company.data("suppliers").list(model=Supplier)
    assert_type(suppliers, Pager[Supplier])
    read = await suppliers.first()
    assert read is not None
    changed = read.model_copy(update={"supplier_name": "Toft"})
    ash, elm = Supplier(supplier_name="Ash"), Supplier(supplier_name="Elm")
    created = await integration_client.wait(await books.push("suppliers", ash, check="options"))
    assert created.data is not None
    update = await books.update("suppliers", created.data["id"], changed)
    updated = await integration_client.wait(update)
    async with integration_client.coordinator(check="options") as pushes:
        request = PushRequest(held.id, books.id, "suppliers", elm, natural_key="supplierName")
        outcome = await (await pushes.submit(request))

    assert (created.data["supplierName"], updated.status) == ("Ash", PushStatus.SUCCESS)
    assert outcome.status is OutcomeStatus.SUCCESS
    assert outcome.request.record is elm
