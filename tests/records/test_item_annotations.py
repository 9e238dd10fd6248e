"""A field is read as its annotation says, in whichever of Python's ways that is written."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, NewType

import attr
import attrs
import msgspec
import pytest
from typing_extensions import TypeAliasType

from integration_sdk._list.page import ItemReader
from integration_sdk._records.codec import encode_record
from integration_sdk.errors import ConfigurationError


@attrs.frozen
class Line:
    unit_amount: Decimal


def with_field(kind: Any) -> type:
    """A class whose only field, ``held``, is annotated with *kind*."""
    return attrs.make_class("Holder", {"held": attrs.field(type=kind)}, frozen=True)


def held(kind: Any, text: str) -> Any:
    """What a field of *kind* is read into from JSON, and read into again once it was written."""
    reader = ItemReader.of(with_field(kind))
    item = reader.value(msgspec.Raw(f'{{"held":{text}}}'.encode()))
    assert reader.value(msgspec.Raw(encode_record(item))) == item
    return item.held


LINE, RAW = Line(Decimal("0.10")), '{"unitAmount":0.10}'
MaybeLine = NewType("MaybeLine", Line | None)  # type: ignore[valid-newtype]  # checkers want a class
AliasOfLine = TypeAliasType("AliasOfLine", Line | None)
AliasOfLines = TypeAliasType("AliasOfLines", list[Line])


@pytest.mark.parametrize(
    "kind",
    [
        Line | None,
        Annotated[Line, "noted"] | None,
        AliasOfLine | None,
        AliasOfLine,
        MaybeLine,
    ],
)
def test_a_class_is_made_in_a_union_by_whatever_name_it_goes(kind: Any) -> None:
    """A NewType, an alias and an annotated union stand for their members."""
    assert held(kind, RAW) == LINE
    assert held(kind, "null") is None


def test_an_alias_is_what_it_stands_for() -> None:
    """A ``type Lines = list[Line]`` may itself stand in a container or a union."""
    assert held(AliasOfLines, f"[{RAW}]") == [LINE]
    assert held(dict[str, AliasOfLines], f'{{"a":[{RAW}]}}') == {"a": [LINE]}
    assert held(AliasOfLines | None, f"[{RAW}]") == [LINE]


def test_an_alias_of_itself_is_refused_at_once() -> None:
    """Not with a RecursionError of Python's."""

    class TypeAliasType:
        """As Python 3.12 makes of ``type Tree = list[Tree]``."""

        @property
        def __value__(self) -> Any:
            return list[self]  # type: ignore[valid-type]  # made at run time

    with pytest.raises(ConfigurationError, match="model=Holder cannot be read"):
        ItemReader.of(with_field(TypeAliasType()))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("List", f"[{RAW}]", [{"unitAmount": 0.1}]),
        ("Dict", '{"a":1}', {"a": 1}),
        ("Sequence", "[1]", [1]),
        ("Mapping", '{"a":1}', {"a": 1}),
        ("Tuple", "[1]", (1,)),
        ("Set", "[1]", {1}),
    ],
)
def test_a_container_of_anything_needs_no_arguments(name: str, text: str, value: Any) -> None:
    """``typing.List`` alone is ``list``, as it is to type checkers."""
    kind = getattr(typing, name)

    assert held(kind, text) == held(kind | None, text) == value


@pytest.mark.parametrize("mapping", [dict, Mapping])
def test_days_and_times_are_read_as_names_too(mapping: Any) -> None:
    """A balance by day is read as one, whatever the values are; a time is aware as elsewhere."""
    day, moment = date(2023, 4, 1), datetime(2023, 4, 1, 10, tzinfo=UTC)

    assert held(mapping[date, int], '{"2023-04-01T00:00:00":1}') == {day: 1}
    assert held(mapping[date, Line], f'{{"2023-04-01":{RAW}}}') == {day: LINE}
    assert held(mapping[datetime, int], '{"2023-04-01T10:00:00":1}') == {moment: 1}


OldStyle: Any = attr.make_class(
    "OldStyle",
    {
        "amount_due": attr.ib(type=Decimal),
        "first_line": attr.ib(type=Line),
        "paid_on": attr.ib(type=date, default=None),
        "anything": attr.ib(default=None),
    },
)
del OldStyle.__annotations__  # as of a class that was written so, before there were annotations


def test_a_type_that_is_given_as_an_argument_is_the_type() -> None:
    """``attr.ib(type=Decimal)`` is exact, as an annotation is."""
    record = b'{"amountDue":0.1234567890123456789,"firstLine":{"unitAmount":0.10},"anything":[1]}'

    assert ItemReader.of(OldStyle).value(msgspec.Raw(record)) == OldStyle(
        Decimal("0.1234567890123456789"), LINE, None, [1]
    )


class Chain(msgspec.Struct, rename="camel"):
    next_day: date
    next_link: Chain | None = None


class Dated(typing.NamedTuple):
    day: date


@dataclass
class Chained:
    chain: Chain


@dataclass
class Stamped:
    stamp: Dated


@pytest.mark.parametrize("others", [list[int], dict[str, int], set[int] | None, str])
def test_a_class_or_a_day_beside_other_types_is_refused(others: Any) -> None:
    """Which of them a value is would be a guess; and msgspec may free memory twice over a day."""
    for kind in (Line, date, NewType("Due", date), Annotated[date, "noted"]):
        with pytest.raises(ConfigurationError, match="make the class a msgspec Struct"):
            ItemReader.of(with_field(kind | others))
        with pytest.raises(ConfigurationError, match="make the class a msgspec Struct"):
            ItemReader.of(with_field(tuple[str, kind]))  # type: ignore[valid-type]  # made at run time


@pytest.mark.parametrize("model", [Chain, Chained, Stamped])
def test_a_day_where_none_can_be_is_named_in_the_refusal(model: type) -> None:
    """The class has the JSON's names already, so the names are not what is wrong."""
    with pytest.raises(ConfigurationError, match="date"):
        ItemReader.of(model)
