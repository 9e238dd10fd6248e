"""What is read as an object is pushed as one: by the service's names, exactly, all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from integration_sdk import Client, OutcomeStatus, PushOptions, PushRequest, PushStatus
from integration_sdk._list.page import ItemReader
from integration_sdk._records.codec import decode_json, encode_record, encode_value
from integration_sdk._records.shapes import structure
from integration_sdk.errors import InvalidRecord
from integration_sdk.models import PropertyDescription
from integration_sdk.sandbox import Sandbox


@attrs.frozen
class Supplier:
    supplier_name: str
    status: str = "Active"


@dataclass(frozen=True)
class Line:
    unit_amount: Decimal
    tax_code: str | None = None


class Account(msgspec.Struct, frozen=True):
    nominal_code: str
    is_bank: bool = False


class Branch(msgspec.Struct, rename="camel"):
    parts_within: list[Branch | Line]


class Held(msgspec.Struct):
    held: list[Any]


class Renamed(msgspec.Struct, rename={"first_line": "L1"}, frozen=True):
    first_line: Line
    account_id: str = ""


class Payment(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    total_amount: Decimal
    paid_on: datetime | None
    allocated_to: dict[str, tuple[Payment, ...]]
    invoice_refs: frozenset[str]


@attrs.frozen(kw_only=True)
class Bill:
    bill_number: str
    due_date: datetime
    total_amount: Decimal
    supplier_ref: Supplier | None
    line_items: list[Line]
    by_code: dict[str, list[Line]]
    pair: tuple[Line, ...]
    payers: frozenset[Supplier]
    account: Account
    renamed: Renamed
    class_: str
    _memo: str
    tags: list[str] = attrs.Factory(list)


texts = st.text(max_size=8) | st.sampled_from(['a_b":', "_", "snake_case", '\\_":'])
amounts = st.decimals(-(10**9), 10**9, allow_nan=False)
suppliers = st.builds(Supplier, texts, texts)
lines = st.builds(Line, amounts, st.none() | texts)
accounts = st.builds(Account, texts)
by_alias: dict[str, Any] = {
    "totalAmount": st.decimals(-(10**9), 10**9, places=2),  # as a float of pydantic holds them
    "paidOn": st.none() | st.datetimes(timezones=st.just(UTC)),
    "invoiceRefs": st.frozensets(texts, max_size=2),
}
payments = st.recursive(
    st.builds(Payment, **by_alias, allocatedTo=st.just({})),
    lambda inner: st.builds(
        Payment,
        **by_alias,
        allocatedTo=st.dictionaries(texts, st.lists(inner, max_size=2).map(tuple), max_size=2),
    ),
    max_leaves=3,
)
bills = st.builds(
    Bill,
    bill_number=texts,
    due_date=st.datetimes(timezones=st.just(UTC)),
    total_amount=amounts,
    supplier_ref=st.none() | suppliers,
    line_items=st.lists(lines, max_size=3),
    by_code=st.dictionaries(texts, st.lists(lines, max_size=2), max_size=2),
    pair=st.lists(lines, max_size=2).map(tuple),
    payers=st.frozensets(suppliers, max_size=2),
    account=accounts,
    renamed=st.builds(Renamed, lines, texts),
    class_=texts,
    memo=texts,
    tags=st.lists(texts, max_size=2),
)


def written(record: Any) -> Any:
    return json.loads(encode_record(record))


@given(suppliers | lines | accounts | bills | payments)
def test_an_object_is_written_alike_wherever_it_stands(record: Any) -> None:
    """In a dict or a list it has the names, and the members, that it has alone."""
    alone = encode_record(record)

    assert encode_value({"a": [record]}) == b'{"a":[%b]}' % alone
    assert encode_value(Held([record])) == b'{"held":[%b]}' % alone


@given(suppliers | lines | accounts | bills | payments)
def test_what_was_written_reads_back_as_the_same_object(record: Any) -> None:
    """Attrs classes, dataclasses and Structs, in each other, and pydantic models in their like."""
    read = ItemReader.of(type(record), exact=True)

    assert read.value(msgspec.Raw(encode_record(record))) == record


@given(st.recursive(st.none() | st.integers() | texts, lambda x: st.dictionaries(texts, x)))
def test_a_dict_is_sent_as_it_stands(inner: Any) -> None:
    """Its keys are names already, whatever they look like."""
    record = {"some_name": inner, "a_b": {"c_d": [inner]}}

    assert encode_record(record) == msgspec.json.encode(record)


@attrs.frozen
class Terse:
    payer: str = attrs.field(alias="customerName")
    _memo: str = ""


class Place(NamedTuple):
    supplier: Supplier


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"ref": Supplier("Toft")}, {"ref": {"supplierName": "Toft", "status": "Active"}}),
        ({"a": [Line(Decimal(1))]}, {"a": [{"unitAmount": 1, "taxCode": None}]}),
        ({"a": (Supplier("x"),)}, {"a": [{"supplierName": "x", "status": "Active"}]}),
        ({"a": {Supplier("x")}}, {"a": [{"supplierName": "x", "status": "Active"}]}),
        ({"a": frozenset([Line(Decimal(1))])}, {"a": [{"unitAmount": 1, "taxCode": None}]}),
        ({"a": Place(Supplier("x"))}, {"a": [{"supplierName": "x", "status": "Active"}]}),
        ({"a": Account("4")}, {"a": {"nominalCode": "4", "isBank": False}}),
        ({"a": Terse("x", memo="y")}, {"a": {"customerName": "x", "memo": "y"}}),
        ({"a": Held([Terse("x")])}, {"a": {"held": [{"customerName": "x", "memo": ""}]}}),
        (Branch([Branch([])]), {"partsWithin": [{"partsWithin": []}]}),
        (
            Branch([Branch([Line(Decimal(1), "Z")])]),
            {"partsWithin": [{"partsWithin": [{"unitAmount": 1, "taxCode": "Z"}]}]},
        ),
    ],
)
def test_objects_inside_dicts_have_the_services_names(record: Any, expected: Any) -> None:
    """Wherever an object stands, its members go by one name."""
    assert written(record) == expected


def test_a_set_is_written_in_one_order_by_every_process() -> None:
    """A second run is to find the record that the first one pushed under a reference."""
    assert encode_record({"tags": set("hgfedcba")}) == b'{"tags":["a","b","c","d","e","f","g","h"]}'
    assert written({"a": frozenset({Supplier("y"), Supplier("x")})}) == {
        "a": [{"supplierName": name, "status": "Active"} for name in "xy"]
    }


@pytest.mark.parametrize(
    "record", [MappingProxyType({"a": 1}), {"b": MappingProxyType({"a": 1})}, MappingProxyType({})]
)
def test_any_mapping_is_a_record(record: Mapping[str, Any]) -> None:
    """A read-only view of a dict is as good as the dict."""
    plain = {"b": {"a": 1}} if "b" in record else dict(record)

    assert written(record) == plain


class Words(str):
    """As libraries for markup and tables return them."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"<{self.upper()}>"


class Count(int):
    __slots__ = ()


class Share(float):
    """As ``numpy.float64`` is."""

    __slots__ = ()


def test_text_and_numbers_of_other_libraries_are_what_they_hold() -> None:
    """A subclass of str, int or float is written as that, wherever it stands."""
    record = {"a": Words("x"), "b": [Count(2), True, Share(0.5)]}

    assert written(record) == {"a": "x", "b": [2, True, 0.5]}
    with pytest.raises(InvalidRecord, match=r"\$\.a is nan"):
        encode_record({"a": Share("nan")})


class Moment(datetime):
    """As ``pandas.Timestamp`` is, which may know nanoseconds."""

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return super().isoformat(sep, "microseconds").replace("+", "789+")


class Day(date):
    """As that of a library that fakes the time in tests."""


class NoTime(datetime):
    """As ``pandas.NaT`` is."""

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return "NaT"


class Money(Decimal):
    """A Decimal with methods of its own."""


def test_times_and_decimals_of_other_libraries_are_what_they_hold() -> None:
    """A subclass of a datetime, date or Decimal is written as that, wherever it stands."""
    moment = Moment(2023, 4, 1, 10, 0, 0, 123456, tzinfo=UTC)
    record = {"a": moment, "b": [Day(2023, 4, 1)], "c": Money("1.10")}

    assert encode_record(record) == (
        b'{"a":"2023-04-01T10:00:00.123456Z","b":["2023-04-01"],"c":1.10}'
    )
    assert encode_record({"a": moment}) == encode_record(
        {"a": datetime(2023, 4, 1, 10, 0, 0, 123456, tzinfo=UTC)}
    )
    with pytest.raises(InvalidRecord, match=r"'NaT', at \$\.lines\[1\]\.due"):
        encode_record({"a": 1, "lines": [{}, {"due": NoTime(1, 1, 1)}]})


def test_what_numpy_holds_is_written_as_pythons_own() -> None:
    """Scalars of every width, and arrays as lists; what is no number is refused with its path."""
    record = {
        "count": np.int64(3),
        "share": np.float32(1.5),
        "paid": np.bool_(True),
        "name": np.str_("Acme"),
        "lines": [{"net": np.uint8(7)}, np.array([[1, 2], [3, 4]], dtype=np.int16)],
    }

    assert written(record) == {
        "count": 3,
        "share": 1.5,
        "paid": True,
        "name": "Acme",
        "lines": [{"net": 7}, [[1, 2], [3, 4]]],
    }
    with pytest.raises(InvalidRecord, match=r"\$\.a is nan"):
        encode_record({"a": np.float32("nan")})
    with pytest.raises(InvalidRecord, match=r"at \$\.a\.b"):
        encode_record({"a": {"b": np.longdouble(1)}})


@pytest.mark.parametrize("record", [{Decimal("1.50"): 1}, {"a": [{Decimal("1.50"): 1}]}])
def test_a_decimal_is_a_name_as_any_number_is(record: Any) -> None:
    """In quotes: without them the whole body would be no JSON."""
    assert b'{"1.50":1}' in encode_record(record)
    assert encode_record(Held([record])) == b'{"held":[%b]}' % encode_record(record)
    assert written(record)


@pytest.mark.parametrize("amount", ["1e400", "-1e-400", "1e999999"])
def test_a_decimal_beyond_any_float_is_a_number(amount: str) -> None:
    """Beside a null as well, which makes a record worth searching for NaN."""
    record = {"a": Decimal(amount), "b": None, "c": "NaN"}

    assert decode_json(encode_record(record), exact=True) == record


def test_nan_inside_any_mapping_is_found() -> None:
    """It would become null, and a record would lose its amount."""
    with pytest.raises(InvalidRecord, match="is nan"):
        encode_record(MappingProxyType({"a": MappingProxyType({"b": float("nan")})}))
    with pytest.raises(InvalidRecord, match=r"\$\.a\.b\.c is nan"):
        encode_record({"a": MappingProxyType({"b": MappingProxyType({"c": float("nan")})})})
    with pytest.raises(InvalidRecord, match=r"\$\.unitAmount is NaN"):
        encode_record(Line(Decimal("nan")))
    with pytest.raises(InvalidRecord, match=r"\$\.a is sNaN"):
        encode_record({"a": Decimal("snan")})


class Partial(msgspec.Struct):
    customer_ref: msgspec.Raw


def test_what_was_left_undecoded_is_sent_as_it_came() -> None:
    """A member that is ``msgspec.Raw`` costs no decoding, and can be pushed."""
    ref = {"some_id": "7", "amount": 1.5}
    record = ItemReader.of(Partial).value(msgspec.Raw(json.dumps({"customerRef": ref}).encode()))

    assert written(record) == written({"customerRef": record.customer_ref}) == {"customerRef": ref}
    with pytest.raises(InvalidRecord, match="truncated"):
        encode_record({"customerRef": msgspec.Raw(b'{"half":')})
    with pytest.raises(InvalidRecord, match="InvalidOperation"):
        encode_record({"customerRef": msgspec.Raw(b"1e99999999999999999999")})


class Tagged(msgspec.Struct, tag="bill", omit_defaults=True):
    bill_lines: list[Line] = []
    due_amount: Decimal = Decimal(0)


class InOrder(msgspec.Struct, array_like=True):
    first_line: Line


def test_a_struct_is_written_as_its_class_says() -> None:
    """Tags, defaults that are left out and values in order stay what they are."""
    assert written(Tagged()) == {"type": "bill"}
    assert written(Tagged([Line(Decimal(1))])) == {
        "type": "bill",
        "billLines": [{"unitAmount": 1, "taxCode": None}],
    }
    assert written({"a": InOrder(Line(Decimal(1)))}) == {"a": [{"unitAmount": 1, "taxCode": None}]}
    assert encode_record(Tagged(due_amount=Decimal("1.10"))) == b'{"type":"bill","dueAmount":1.10}'


@dataclass
class Computed:
    net_amount: Decimal
    total_amount: Decimal = dataclass_field(init=False)
    _cache: dict[str, Any] = dataclass_field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.total_amount = self.net_amount * 2


@attrs.define
class Partly:
    given_name: str
    other: Any = msgspec.UNSET
    later: str = attrs.field(init=False)


def test_what_a_class_reckons_is_sent_and_what_it_hides_or_lacks_is_not() -> None:
    """A total made in ``__post_init__`` counts; a private cache and an unset member do not."""
    assert written(Computed(Decimal(2))) == {"netAmount": 2, "totalAmount": 4}
    assert written(Partly("Toft")) == {"givenName": "Toft"}


def test_writing_leaves_the_object_alone() -> None:
    """What was pushed is still the caller's, Structs and what is in them included."""
    inner = [Line(Decimal(1))]
    record = Tagged(inner)
    encode_record(record)

    assert record.bill_lines is inner
    assert inner == [Line(Decimal(1))]


def test_options_judge_an_object_by_the_names_it_is_sent_under() -> None:
    """A required ``supplierName`` is there if the object has a ``supplier_name``."""
    name = {"type": "String", "required": True}
    described = {"type": "Object", "properties": {"supplierName": name, "status": name}}
    options = PushOptions.of(structure(described, PropertyDescription))

    assert options.check(Supplier("Toft")) == []
    (problem,) = options.check(Supplier(""))
    assert problem.path == "supplierName"


@pytest.mark.integration_sandbox(companies=1, push_seconds=(0.01, 0.05))
async def test_the_class_that_a_list_is_read_with_can_be_pushed(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """Alone, compared with the options, and by a coordinator that looks for its natural key."""
    (held,) = integration_sandbox.companies
    company = integration_client.company(held.id)
    books = company.connection(held.connections[0].id)
    read = await company.data("suppliers").list(model=Supplier).first()
    assert read is not None
    operation = await books.push("suppliers", attrs.evolve(read, supplier_name="Toft"))
    ended = await integration_client.wait(
        await books.push("suppliers", Supplier("Ash"), check="options")
    )
    async with integration_client.coordinator(check="options") as pushes:
        request = PushRequest(
            held.id, books.id, "suppliers", Supplier("Elm"), natural_key="supplierName"
        )
        outcome = await (await pushes.submit(request))

    assert (await integration_client.wait(operation)).status is PushStatus.SUCCESS
    assert ended.data is not None
    assert ended.data["supplierName"] == "Ash"
    assert outcome.status is OutcomeStatus.SUCCESS
    assert outcome.request.record == Supplier("Elm")
