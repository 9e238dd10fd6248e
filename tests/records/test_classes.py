"""Records in users' classes: class x field x JSON, both ways."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel

from integration_sdk._records.classes import ItemReader
from integration_sdk._records.codec import encode_record
from integration_sdk.errors import ConfigurationError, InvalidRecord
from tests.support.pager_support import unopened

T = TypeVar("T")


class Status(Enum):
    PAID = "Paid"


@attrs.frozen
class Line:
    unit_amount: Decimal
    description: str | None = None


@attrs.frozen
class Named:
    first_name: str


def attrs_class(kind: Any) -> Any:
    return attrs.make_class("Attrs", {"some_field": attrs.field(type=kind)}, frozen=True)


def model(kind: Any) -> Any:
    config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)
    return pydantic.create_model("Model", __config__=config, some_field=(kind, ...))


MADE: dict[str, Callable[[Any], Any]] = {
    "attrs": attrs_class,
    "dataclass": lambda kind: dataclasses.make_dataclass("Data", [("some_field", kind)]),
    "snake_struct": lambda kind: msgspec.defstruct("Snake", [("some_field", kind)]),
}
"""Those that cattrs reads, and no type of JSON is coerced for."""
CLASSES = MADE | {
    "struct": lambda kind: msgspec.defstruct("Camel", [("some_field", kind)], rename="camel"),
    "typed_dict": lambda kind: TypedDict("Typed", {"someField": kind}),  # type: ignore[operator]  # made at run time
    "pydantic": model,
}
every_class = pytest.mark.parametrize("make", CLASSES.values(), ids=CLASSES)
made_by_cattrs = pytest.mark.parametrize("make", MADE.values(), ids=MADE)
NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)

READ: list[tuple[Any, str, Any]] = [
    (str, '"a"', "a"),
    (int, "7", 7),
    (int, "12345678901234567890", 12345678901234567890),
    (float, "1.5", 1.5),
    (float, "2", 2.0),
    (bool, "true", True),
    (Decimal, "0.1", Decimal("0.1")),
    (Decimal, "7", Decimal(7)),
    (Decimal, '"1.50"', Decimal("1.50")),
    (str | None, "null", None),
    (Decimal | None, "0.30", Decimal("0.30")),
    (datetime, '"2024-05-31T12:00:00Z"', NOON),
    (datetime, '"2024-05-31T14:00:00+02:00"', NOON),
    (date, '"2024-05-31"', date(2024, 5, 31)),
    (Status, '"Paid"', Status.PAID),
    (Literal["a", "b"], '"b"', "b"),
    (str | int, "7", 7),
    (list[int], "[1,2]", [1, 2]),
    (list[str | None], '["a",null]', ["a", None]),
    (dict[str, int], '{"a":1}', {"a": 1}),
    (tuple[int, ...], "[1,2]", (1, 2)),
    (set[int], "[1,2]", {1, 2}),
    (Any, '{"a":[1.5,null]}', {"a": [1.5, None]}),
    (dict[str, Any], '{"a":1.5}', {"a": 1.5}),
    (list[Any], "[1.5]", [1.5]),
]
READ_BY_CATTRS: list[tuple[Any, str, Any]] = [
    (Decimal, "0.12345678901234567890123", Decimal("0.12345678901234567890123")),
    (Decimal, "12345678901234567890.12", Decimal("12345678901234567890.12")),
    (datetime, '"2024-05-31T12:00:00.0000001Z"', NOON),
    (datetime, '"2024-05-31T12:00:00"', NOON),
    (datetime, '"9999-12-31T23:59:59.9999999"', datetime.max.replace(tzinfo=UTC)),
    (datetime, '"9999-12-31T23:59:59-05:00"', datetime.max.replace(tzinfo=UTC)),
    (date, '"2024-05-31T00:00:00Z"', date(2024, 5, 31)),
    (date, '"2024-05-31T00:00:00.000"', date(2024, 5, 31)),
    (int, "7.0", 7),
    (Decimal | str, "1.25", Decimal("1.25")),
    (float | str, "1.25", 1.25),
    (Line, '{"unitAmount":0.10,"more":1}', Line(Decimal("0.10"))),
    (list[Line], '[{"unitAmount":1,"description":"a"}]', [Line(Decimal(1), "a")]),
    (dict[str, Line | None], '{"a":null}', {"a": None}),
    (Sequence[Line], '[{"unitAmount":1}]', [Line(Decimal(1))]),
    (Mapping[str, Line], '{"a":{"unitAmount":1}}', {"a": Line(Decimal(1))}),
    (list[Line | Named], '[{"firstName":"a"},{"unitAmount":1}]', [Named("a"), Line(Decimal(1))]),
]
REFUSED: list[tuple[Any, str]] = [
    *((str, "7"), (str, "null"), (str, "true"), (int, '"7"'), (int, "true"), (int, "1.5")),
    *((float, '"1.5"'), (float, "true"), (bool, '"true"'), (bool, "1"), (Decimal, "true")),
    *((Decimal, '"one"'), (Decimal, '"NaN"'), (datetime, "7"), (datetime, '"soon"')),
    *((date, '"2024-05-31T12:00:00Z"'), (date, "7"), (Status, '"Lost"'), (Literal["a"], '"b"')),
    *((str | int, "true"), (str | int, "1.5"), (list[int], '["1"]'), (dict[str, int], "[]")),
    *((Line, "[]"), (Line, "{}"), (list[Line], '[{"unitAmount":"x"}]')),
    *((list[str], '"abc"'), (list[str], '{"a":1}'), (set[str], '"abc"'), (Sequence[str], '"abc"')),
    *((tuple[str, ...], '"abc"'), (list, '"abc"'), (dict, '[["a","b"]]')),
]


def read(kind: Any, text: str, **options: Any) -> Any:
    return ItemReader.of(kind, **options).decode(text.encode())


def field_of(item: Any) -> Any:
    if isinstance(item, dict):
        return next(iter(item.values()))
    return item.some_field


@every_class
@pytest.mark.parametrize(("kind", "text", "value"), READ)
def test_any_class_reads_and_writes_any_field(
    make: Callable[[Any], Any], kind: Any, text: str, value: Any
) -> None:
    """``some_field`` from ``someField``, of the type that its annotation says; and back under the
    service's names: numbers are numbers, and dates are ISO 8601.
    """
    item = read(make(kind), f'{{"someField":{text},"other":1}}')
    assert (field_of(item), type(field_of(item))) == (value, type(value))

    (name, found), *others = json.loads(encode_record(item), parse_float=Decimal).items()
    assert (name, others) == ("someField", [])
    if kind is datetime:
        assert datetime.fromisoformat(found) == value
    elif kind is Decimal:
        assert (Decimal(found), type(found)) in ((value, Decimal), (value, int))
    elif not isinstance(value, Enum):
        assert found == json.loads(text, parse_float=Decimal)


@made_by_cattrs
@pytest.mark.parametrize(("kind", "text", "value"), READ_BY_CATTRS)
def test_classes_read_digits_dates_and_classes(
    make: Callable[[Any], Any], kind: Any, text: str, value: Any
) -> None:
    """Exactly: all digits, times in UTC cut to microseconds, days with midnight, nested classes."""
    found = field_of(read(make(kind), f'{{"someField":{text}}}'))

    assert found == value or tuple(found) == tuple(value)


@made_by_cattrs
@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_nothing_is_coerced(make: Callable[[Any], Any], kind: Any, text: str) -> None:
    """What has another type is an error that says where."""
    reader, raw = ItemReader.of(make(kind)), f'{{"someField":{text}}}'.encode()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of cattrs, or of the class
        reader.decode(raw)

    what, path = reader.reason(raw, caught.value)
    assert what
    assert path.startswith("$")


# What a class says of itself


def positive(_: Any, attribute: Any, value: Any) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} must be positive")


def upper(text: str) -> str:
    return text.upper()


@attrs.define
class Invoice:
    total: Decimal = attrs.field(validator=positive)
    _key: str = attrs.field(default="none")
    lines: list[Line] = attrs.field(factory=list)
    upper: str = attrs.field(default="a", converter=upper)
    twice: Decimal = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.twice = self.total * 2


def test_a_class_makes_its_items() -> None:
    """By its own ``__init__``: defaults, factories, converters, private names, validators."""
    invoice = read(Invoice, '{"total":1.5,"key":"k","upper":"b"}')

    assert invoice == Invoice(Decimal("1.5"), "k", [], "b")
    assert (invoice.upper, invoice.twice) == ("B", Decimal("3.0"))
    assert read(Invoice, '{"total":1}')._key == "none"


def first_of(lines: list[int]) -> Any:
    return next(iter(lines))


@attrs.frozen
class Converted:
    lines: Any = attrs.field(converter=first_of)


class Checked(msgspec.Struct):
    lines: list[int]

    def __post_init__(self) -> None:
        first_of(self.lines)


class Validated(pydantic.BaseModel):
    lines: Annotated[Any, pydantic.AfterValidator(first_of)]


@pytest.mark.parametrize("kind", [Converted, Checked, Validated])
def test_no_item_is_lost_by_a_class_that_raises_stop_iteration(kind: Any) -> None:
    """As ``next()`` does: a list would take it for the end of a slice, without an error."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(map(ItemReader.of(kind).decode, [b'{"lines":[]}']))


class Entry(TypedDict):
    total: Decimal
    lines: list[Line]


class Due(msgspec.Struct):
    due_date: date


WRONG = [
    (Invoice, '{"total":-1}', "total must be positive", "$"),
    (Invoice, '{"total":1,"lines":[{"unitAmount":"x"}]}', "'x'", "$.lines[0].unit_amount"),
    (model(list[int]), '{"someField":[1,"x"]}', "valid integer", "$.someField[1]"),
    (Entry, '{"total":1,"lines":[{"unitAmount":"x"}]}', "'x'", "$.lines[0].unit_amount"),
    (Entry, '{"lines":[]}', "no 'total'", "$.total"),
    (Due, '{"dueDate":"soon"}', "'soon'", "$.due_date"),
]


@pytest.mark.parametrize(("kind", "text", "says", "where"), WRONG)
def test_an_error_says_what_and_where(kind: Any, text: str, says: str, where: str) -> None:
    """In a nested list too, by the words of a validator or of pydantic."""
    reader, raw = ItemReader.of(kind), text.encode()
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        reader.decode(raw)

    what, path = reader.reason(raw, caught.value)
    assert (says in what, path) == (True, where)


@attrs.frozen
class Tree:
    name: str
    children: list[Tree] = attrs.Factory(list)


@attrs.frozen
class Box(Generic[T]):
    held_item: T


class Dated(TypedDict, total=False):
    due_date: date


class Partial(Dated):
    id: str
    paid_on: NotRequired[date]


def test_more_kinds_of_classes() -> None:
    """One that contains itself, a generic one with its type, and keys that may be missing."""
    tree = read(Tree, '{"name":"a","children":[{"name":"b"}]}')
    assert tree == Tree("a", [Tree("b")])
    assert read(Box[Line], '{"heldItem":{"unitAmount":1}}') == Box(Line(Decimal(1)))
    assert read(Partial, '{"id":"1"}') == {"id": "1"}
    assert read(Partial, '{"id":"1","dueDate":"2024-05-31"}')["due_date"] == date(2024, 5, 31)
    with pytest.raises(KeyError):
        read(Partial, "{}")


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], dict[str, list], dict[str, list[Any]]])  # type: ignore[type-arg]  # on purpose
@pytest.mark.parametrize("make", [lambda _: None, *MADE.values(), CLASSES["struct"]])
def test_fractions_without_annotation(make: Callable[[Any], Any], kind: Any) -> None:
    """Are floats, or Decimals if the list says so."""
    text = '{"someField":{"a":[0.10]}}'
    for numbers, value in (("float", 0.1), ("decimal", Decimal("0.10"))):
        item = read(make(kind), text, numbers=numbers)
        found = field_of(item)["a"][0]
        assert (found, type(found)) == (value, type(value))


class Snake(pydantic.BaseModel):
    due_date: str


@attrs.frozen
class WithModel:
    inner: Snake


@attrs.frozen
class Undefined:
    some: Nowhere  # type: ignore[name-defined]  # noqa: F821 (that is the point)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((int, "must be an attrs class"), (dict, "must be an attrs class"), (7, "must be")),
        *((Snake, "alias_generator=to_camel"), (WithModel, "a pydantic model")),
        *((Undefined, "Nowhere"), (attrs_class(complex), "complex")),
        *((attrs_class(datetime | str), "datetime"), (attrs_class(Callable[[], int]), "Callable")),
    ],
)
def test_a_model_that_cannot_work_is_refused(kind: Any, what: str) -> None:
    """When the list is made, with the reason."""
    with pytest.raises(ConfigurationError, match=r"model=.*cannot be read") as caught:
        unopened(model=kind)

    assert what in str(caught.value)


# Writing


class Camel(msgspec.Struct, rename="camel", omit_defaults=True):
    unit_amount: Decimal
    some_text: str = ""


class Plain(msgspec.Struct):
    unit_amount: Decimal


@dataclasses.dataclass
class Data:
    due_date: date
    line_items: list[Any]
    _hidden: str = dataclasses.field(default="x", init=False)


def test_nested_objects_are_written_with_the_services_names() -> None:
    """Classes of all kinds in each other, in dicts, lists, sets and tuples."""
    record = {
        "data": Data(date(2024, 5, 31), [Line(Decimal("0.10")), Camel(Decimal(1))]),
        "plain": (Plain(Decimal("1e-7")),),
        "set": {3, 1, 2},
        "model": model(Decimal)(some_field=Decimal("1.50")),
        Decimal(1): None,
    }

    assert json.loads(encode_record(record), parse_float=str) == {
        "data": {
            "dueDate": "2024-05-31",
            "lineItems": [{"unitAmount": "0.10", "description": None}, {"unitAmount": 1}],
        },
        "plain": [{"unitAmount": "1E-7"}],
        "set": [1, 2, 3],
        "model": {"someField": "1.50"},
        "1": None,
    }


def test_numbers_of_numpy_and_pandas_are_written() -> None:
    """Scalars, arrays and timestamps, as Python's own would be."""
    import numpy as np
    import pandas as pd  # type: ignore[import-untyped]  # has no types here

    record = {
        "a": np.float64(1.5),
        "b": np.int64(7),
        "c": np.bool_(True),
        "d": np.array([1, 2]),
        "e": pd.Timestamp("2024-05-31T12:00:00Z"),
        "f": np.str_("x"),
        "g": np.array(["2024-05-31T12:00:00"], "datetime64[ns]"),
    }

    assert encode_record(record) == (
        b'{"a":1.5,"b":7,"c":true,"d":[1,2],"e":"2024-05-31T12:00:00Z","f":"x",'
        b'"g":["2024-05-31T12:00:00"]}'
    )


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (LOOP, "contains itself"),
        ({"a": float("nan")}, r"nan is not a JSON number, at \$\.a$"),
        ({"a": [Decimal("Infinity")]}, r"Infinity .*, at \$\.a\[0\]$"),
        ({"a": [{"b": (float("-inf"),)}]}, r"-inf .*, at \$\.a\[0\]\.b\[0\]$"),
        ({"lines": [1, Plain(Decimal("NaN"))]}, r"NaN .*, at \$\.lines\[1\]\.unitAmount$"),
        ({"lines": [1, {"tax": attrs_class(Any)(object())}]}, r"at \$\.lines\[1\]\.tax\.someField"),
        ({"a": complex(1)}, r"at \$\.a"),
        ({"a": "half \ud800"}, r"at \$\.a"),
        ({"a": {(1, 2): "a"}}, r"at \$\.a"),
        ([1], "must be an object"),
        ("text", "must be an object"),
        (Snake(due_date="x"), "alias_generator"),
    ],
)
def test_what_json_cannot_hold_is_refused(record: Any, what: str) -> None:
    """With the place."""
    with pytest.raises(InvalidRecord, match=what):
        encode_record(record)
