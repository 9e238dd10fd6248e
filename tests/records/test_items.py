"""An item becomes what the caller asked for, exactly, and one bad item costs itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._list.page import ItemReader, PageItems
from integration_sdk._records.classes import camel
from integration_sdk._records.codec import encode_record
from integration_sdk.errors import ConfigurationError, InvalidItem
from tests.support.pager_support import Records, Serve, by_hand, open_page

INVOICE = {
    "id": "7",
    "dueDate": "2023-04-01T10:00:00",
    "paidOn": None,
    "amountDue": 12.10,
    "customerRef": {"companyName": "Toft Timber"},
    "lineItems": [{"unitAmount": 0.1}, {"unitAmount": 0.30}],
    "byCode": {"a": {"unitAmount": 1}},
    "unknownToUs": [1, 2],
}


@attrs.frozen
class Customer:
    company_name: str


@attrs.frozen
class Line:
    unit_amount: Decimal
    quantity: Decimal = Decimal(1)


def upper(value: str) -> str:
    return value.upper()


@attrs.frozen(kw_only=True)
class Invoice:
    id: str
    due_date: datetime
    amount_due: Decimal
    customer_ref: Customer | None
    line_items: list[Line]
    by_code: dict[str, Line]
    paid_on: datetime | None
    pair: tuple[Line, ...] = ()
    currency: str = attrs.field(default="gbp", converter=upper)
    notes: list[str] = attrs.Factory(list)
    label: str = attrs.field(default=attrs.Factory(lambda self: f"#{self.id}", takes_self=True))
    seen: bool = attrs.field(default=False, init=False)


@attrs.frozen
class Everywhere:
    sequence: Sequence[Line]
    mapping: Mapping[str, Line]
    optional: list[Line] | None
    either: Line | None
    places: tuple[str, int]
    many: dict[str, list[Line | None]]
    class_: str
    missing: Sequence[Line] | None = None
    absent: Sequence[Line] = ()


class LinesStruct(msgspec.Struct, rename={"lines": "L"}, forbid_unknown_fields=True):
    lines: list[Line]


class LinesDict(TypedDict):
    L: list[Line]


class SnakeDict(TypedDict):
    amount_due: Decimal
    paid_on: NotRequired[datetime]


class Inside(NamedTuple):
    line: Line


@attrs.frozen
class Unreadable:
    deep: dict[str, list[Inside]]


@dataclass(frozen=True)
class LineData:
    unit_amount: float


@dataclass
class InvoiceData:
    id: str
    due_date: datetime
    line_items: list[LineData]
    tags: list[str] = dataclass_field(default_factory=list)


class SnakeStruct(msgspec.Struct):
    id: str
    amount_due: Decimal


class CamelStruct(msgspec.Struct, rename="camel"):
    id: str
    amount_due: float


class InvoiceDict(TypedDict):
    id: str
    amountDue: float


def read(model: Any, record: Any = INVOICE, **options: Any) -> Any:
    return ItemReader.of(model, **options).value(msgspec.Raw(msgspec.json.encode(record)))


# Models


def test_an_attrs_class_is_read_with_its_own_names() -> None:
    """Nested classes, optional ones, lists and dicts of them; dates aware; amounts exact."""
    assert read(Invoice) == Invoice(
        id="7",
        due_date=datetime(2023, 4, 1, 10, tzinfo=UTC),
        amount_due=Decimal("12.1"),
        customer_ref=Customer("Toft Timber"),
        line_items=[Line(Decimal("0.1")), Line(Decimal("0.3"))],
        by_code={"a": Line(Decimal(1))},
        paid_on=None,
    )


def test_an_attrs_class_makes_its_own_defaults() -> None:
    """Converters run, and a default that looks at the object is made by the class."""
    invoice = read(Invoice)

    assert (invoice.currency, invoice.notes, invoice.label) == ("GBP", [], "#7")
    assert read(Invoice, {**INVOICE, "label": "mine", "currency": "eur"}).label == "mine"
    assert read(Invoice).notes is not invoice.notes


def test_a_dataclass_is_read_with_its_own_names() -> None:
    """As an attrs class is."""
    assert read(InvoiceData) == InvoiceData(
        "7", datetime(2023, 4, 1, 10, tzinfo=UTC), [LineData(0.1), LineData(0.3)]
    )


def test_an_init_only_variable_of_a_dataclass_is_read() -> None:
    """It is an argument like any other, though the class keeps it in no field."""

    @dataclass
    class Priced:
        net_amount: int
        tax_rate: InitVar[int]
        surcharge: InitVar[int] = 3

        def __post_init__(self, tax_rate: int, surcharge: int) -> None:
            self.net_amount += tax_rate + surcharge

    assert read(Priced, {"netAmount": 100, "taxRate": 20}) == Priced(100, 20)
    assert read(Priced, {"netAmount": 100, "taxRate": 20, "surcharge": 0}) == Priced(100, 20, 0)


def test_a_struct_that_names_its_fields_is_taken_at_its_word() -> None:
    """A Struct with ``rename`` is read by msgspec alone, one without by our rule."""
    assert read(CamelStruct) == CamelStruct("7", 12.1)
    assert read(SnakeStruct) == SnakeStruct("7", Decimal("12.1"))


def test_a_typed_dict_is_a_checked_dict() -> None:
    """Its keys are the service's; others are left out."""
    assert read(InvoiceDict) == {"id": "7", "amountDue": 12.1}


def test_a_class_is_read_by_its_own_names_wherever_it_stands() -> None:
    """In abstract containers, and optional; a Python keyword is a name like any other."""
    raw = {"unitAmount": 2}
    line = Line(Decimal(2))
    record = {
        "sequence": [raw],
        "mapping": {"a": raw},
        "optional": [raw],
        "either": raw,
        "places": ["a", 1],
        "many": {"a": [raw, None]},
        "class": "A",
    }

    assert read(Everywhere, record) == Everywhere(
        [line], {"a": line}, [line], line, ("a", 1), {"a": [line, None]}, "A"
    )
    again = read(Everywhere, {**record, "optional": None, "either": None, "missing": [raw]})
    assert (again.optional, again.either, again.missing) == (None, None, [line])


def test_a_class_within_a_struct_or_typed_dict_is_read_by_its_own_names() -> None:
    """What the outer class says of its JSON stands; the inner ones are made as ever."""
    lines = {"L": [{"unitAmount": 2}]}

    assert read(LinesStruct, lines) == LinesStruct([Line(Decimal(2))])
    assert read(LinesDict, lines) == {"L": [Line(Decimal(2))]}
    with pytest.raises(msgspec.ValidationError, match="unknown"):
        read(LinesStruct, {**lines, "M": 1})


def test_a_typed_dict_in_snake_case_is_read_from_the_services_names() -> None:
    """As a class is; a key that may be missing is left out."""
    paid = datetime(2023, 4, 1, tzinfo=UTC)

    assert read(SnakeDict, {"amountDue": 2.5}) == {"amount_due": Decimal("2.5")}
    assert read(SnakeDict, {"amountDue": 1, "paidOn": "2023-04-01T00:00:00"}) == {
        "amount_due": Decimal(1),
        "paid_on": paid,
    }


def test_annotations_are_kept() -> None:
    """A constraint in ``Annotated`` is checked inside a class of any kind."""

    @attrs.frozen
    class Bounded:
        amount_due: Annotated[float, msgspec.Meta(le=10)]

    with pytest.raises(msgspec.ValidationError, match="<= 10"):
        ItemReader.of(_resolved(Bounded)).value(msgspec.Raw(b'{"amountDue": 11}'))


def _resolved(model: type) -> type:
    model.__annotations__ = {"amount_due": Annotated[float, msgspec.Meta(le=10)]}
    return model


class Recursive:
    pass


@attrs.define
class Tree:
    children: list[Tree]


@pytest.mark.parametrize("model", [int, Recursive, Tree, list[Invoice], "Invoice", Unreadable])
def test_a_model_that_cannot_be_read_is_refused_at_once(model: Any) -> None:
    """The error comes before anything is asked for, and names the class."""
    with pytest.raises(ConfigurationError, match="model="):
        ItemReader.of(model)


T = TypeVar("T")


@attrs.frozen
class Owed(Generic[T]):
    amount_due: T


@attrs.frozen
class OwedLines(Owed[list[Line]]):
    pass


@attrs.frozen
class OwedExactly(Owed[Decimal]):
    amount_due: Decimal


@pytest.mark.parametrize("model", [Owed[Decimal], OwedLines])
def test_a_field_that_a_generic_class_leaves_open_is_not_guessed(model: Any) -> None:
    """A type checker knows its type; it would be read as plain JSON, so it has to be declared."""
    with pytest.raises(ConfigurationError, match="declare"):
        ItemReader.of(model)

    assert read(OwedExactly, {"amountDue": 2.50}) == OwedExactly(Decimal("2.5"))
    assert read(Owed, {"amountDue": 2.5}) == Owed(2.5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("due_date", "dueDate"),
        ("id", "id"),
        ("id_", "id"),
        ("dueDate", "dueDate"),
        ("a_b_c", "aBC"),
    ],
)
def test_names_are_the_services_in_snake_case(ours: str, theirs: str) -> None:
    """``due_date`` is read from ``dueDate``; a name that is the service's stays."""
    assert camel(ours) == theirs


# Days


@attrs.define
class Day:
    due_date: date
    paid_on: date | None = None
    others: list[date] = attrs.field(factory=list)


@dataclass
class DayData:
    due_date: date
    paid_on: date | None = None
    others: list[date] = dataclass_field(default_factory=list)


class DayStruct(msgspec.Struct, rename="camel"):
    due_date: date
    paid_on: date | None = None
    others: list[date] = []


class DayDict(TypedDict):
    dueDate: date
    paidOn: date | None
    others: list[date]


midnights = st.sampled_from(["", "T00:00", "T00:00:00", "T00:00:00Z", "T00:00:00.0000000+02:00"])


@pytest.mark.parametrize("model", [Day, DayData, DayStruct, DayDict])
@given(st.dates(), midnights)
def test_a_day_is_read_with_its_midnight_or_without(model: Any, day: date, midnight: str) -> None:
    """The service writes ``2021-01-31T00:00:00`` for a day; it is pushed as ``2021-01-31``."""
    text = f"{day}{midnight}"
    item = read(model, {"dueDate": text, "paidOn": text, "others": [text]})
    written = msgspec.json.decode(encode_record(item))

    assert written == {"dueDate": str(day), "paidOn": str(day), "others": [str(day)]}
    assert read(model, {"dueDate": text, "paidOn": None, "others": []}) == (
        {"dueDate": day, "paidOn": None, "others": []} if model is DayDict else model(day)
    )


@pytest.mark.parametrize("text", ["2021-01-31T10:00:00", "31/01/2021", "", "2021-02-31", 20210131])
def test_what_is_more_or_less_than_a_day_does_not_fit(text: object) -> None:
    """A time that a day has no room for is not lost in silence."""
    with pytest.raises((msgspec.ValidationError, ValueError)):
        read(Day, {"dueDate": text})


# Numbers


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_exact_to_the_digit(amount: Decimal) -> None:
    """What the service wrote is what an annotated field, or ``exact``, holds."""
    raw = msgspec.Raw(b'{"id":"7","amountDue":%s}' % format(amount, "f").encode())

    assert ItemReader.of(SnakeStruct).value(raw).amount_due == amount
    assert ItemReader.of(exact=True).value(raw)["amountDue"] == amount


def test_whole_numbers_of_any_size_are_exact() -> None:
    """An int beyond 64 bits stays the int it is."""
    assert read(None, {"id": 2**70 + 1}) == {"id": 2**70 + 1}


# Pages


def test_items_are_counted_as_they_are_handed_out() -> None:
    """A page knows how many are left, and what was skipped, at any moment."""
    reader = ItemReader.of()
    items = PageItems.of(open_page(reader, b'{"results":[1,2,3,4]}'), reader, skip=1)

    assert (next(items.values), items.taken, items.left) == (2, 2, 2)
    assert list(items.values) == [3, 4]
    assert (items.taken, items.left) == (4, 0)


# Items that do not fit


def service_with_bad_items() -> Records:
    return Records(
        items=300,
        after=lambda _: 0,
        records=lambda index: {"id": index, "amountDue": "?" if index % 100 == 50 else 1},
    )


class Amount(msgspec.Struct, rename="camel"):
    id: int
    amount_due: Decimal


async def test_an_item_that_does_not_fit_says_where_and_what_it_is(serve: Serve) -> None:
    """The error has page, index, path and the raw record; reading goes on behind it."""
    service = service_with_bad_items()
    companies = await serve(service)
    items = aiter(companies.list(model=Amount))
    read = [(await anext(items)).id for _ in range(50)]

    with pytest.raises(InvalidItem, match="page 1, item 50") as caught:
        await anext(items)

    error = caught.value
    assert (error.page, error.index, error.item_path) == (1, 50, "$.amountDue")
    assert error.raw == b'{"id":50,"amountDue":"?"}'
    assert read == list(range(50))
    again = companies.list(model=Amount, cursor=error.cursor)
    assert (await again.first()).id == 51  # type: ignore[union-attr]  # there is one


async def test_items_that_do_not_fit_can_be_put_aside(serve: Serve) -> None:
    """``on_invalid`` gets each, the others come, in every way of reading."""
    for way in ("items", "pages", "chunks", "collect"):
        aside: list[InvalidItem] = []
        pager = (await serve(service_with_bad_items())).list(model=Amount, on_invalid=aside.append)

        match way:
            case "items":
                seen = [item.id async for item in pager]
            case "pages":
                seen = [item.id async for page in pager.pages() for item in page.results]
            case "chunks":
                seen = [item.id async for chunk in pager.chunks(7) for item in chunk]
            case _:
                seen = [item.id for item in await pager.collect()]

        assert seen == [index for index in range(300) if index % 100 != 50], way
        assert [error.page for error in aside] == [1, 2, 3]
        assert (pager.report.invalid, pager.report.items) == (3, 297)


async def test_a_limit_counts_items_that_fit(serve: Serve) -> None:
    """An item put aside does not use up the limit."""
    pager = (await serve(service_with_bad_items())).list(
        model=Amount, on_invalid=lambda _: None, limit=120
    )

    assert len(await pager.collect()) == 120


async def test_an_error_of_the_models_own_is_an_item_that_does_not_fit(serve: Serve) -> None:
    """A validator that refuses a value makes an `InvalidItem`, its reason kept as the cause."""

    @attrs.define
    class Positive:
        id: int = attrs.field(validator=attrs.validators.gt(0))

    Positive.__annotations__ = {"id": int}

    with pytest.raises(InvalidItem, match="must be > 0") as caught:
        await (await serve(Records(items=3, after=lambda _: 0))).list(model=Positive).collect()

    assert isinstance(caught.value.__cause__, ValueError)


async def test_bytes_can_be_read_in_a_way_of_ones_own() -> None:
    """``decode`` gets each item's bytes."""
    pager = by_hand(Records(items=3, after=lambda _: 0), decode=len)

    assert await pager.collect() == [8, 8, 8]
