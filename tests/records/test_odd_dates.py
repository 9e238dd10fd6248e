"""Dates at the edge of the calendar: platforms write "no end" as one, and it must break nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import UTC, date, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._http.hints import read_quota, read_retry_after, told_time
from integration_sdk._http.responses import Response, read_error
from integration_sdk._list.page import ItemReader
from integration_sdk._push.agreement import leaf, natural_value
from integration_sdk._push.answers import read_full
from integration_sdk._records.codec import EARLIEST, LATEST, parse_utc
from integration_sdk._records.shapes import read_operation
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.pager_support import open_page
from tests.support.push_support import Connect, coordinator
from tests.support.session_support import read
from tests.support.virtual_service import Answer, Asked, Held, Service, refusal

NO_END, NO_BEGINNING = "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"
NOW = 1_700_000_000.0
offsets = st.integers(-24 * 60 + 1, 24 * 60 - 1).map(lambda n: timezone(timedelta(minutes=n)))
first, last, days = EARLIEST.replace(tzinfo=None), LATEST.replace(tzinfo=None), timedelta(days=2)
extremes = st.one_of(
    st.sampled_from([first, last, last.replace(microsecond=0)]),
    st.datetimes(max_value=first + days),
    st.datetimes(min_value=last - days),
)
dates = st.builds(lambda moment, zone: moment.replace(tzinfo=zone), extremes, offsets)


@attrs.frozen
class Loan:
    due_date: datetime


class Lent(msgspec.Struct, rename="camel"):
    due_date: datetime


def operation(text: str) -> dict[str, Any]:
    dated = {"requestedOnUtc": text, "completedOnUtc": text}
    return {"pushOperationKey": "k", "companyId": "c", "status": "Success", **dated}


@given(dates)
def test_a_date_beyond_the_calendar_becomes_its_nearest_day(moment: datetime) -> None:
    """What UTC cannot say is the first or the last moment that it can; all else is exact."""
    read_as = parse_utc(moment.isoformat())

    assert read_as == min(max(moment, EARLIEST), LATEST)
    assert read_as.tzinfo is UTC


@given(dates)
def test_no_reader_breaks_on_a_date_of_the_service(moment: datetime) -> None:
    """Operations, records, echoes, headers and errors."""
    text, http = moment.isoformat(), format_datetime(moment)
    raw = json.dumps(operation(text)).encode()
    headers = {"Retry-After": http, "X-Rate-Limit-Reset": http, "Date": http}
    row = {"dueDate": text}

    assert read_full(raw) == read_operation(operation(text))
    assert ItemReader.of(Loan).value(msgspec.Raw(json.dumps(row).encode())) == Loan(moment)
    assert leaf(text) == leaf(text)
    assert natural_value(json.dumps(row).encode(), "dueDate") == leaf(text)
    assert (read_retry_after({"Retry-After": http}, NOW) or 0.0) >= 0.0
    assert isinstance(told_time(headers), float)
    for reset in (http, text):
        quota = read_quota({"X-Rate-Limit-Reset": reset}, NOW)
        assert quota is None or quota.reset is None or quota.reset.astimezone(UTC) == quota.reset
    answer = Response(status=429, headers=headers, received_at=NOW)
    assert "429" in str(read_error(read(), answer))


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_the_last_moment_of_dotnet_is_read_by_every_model(zone: str) -> None:
    """``DateTime.MaxValue`` has a digit more than Python's last moment; dicts keep it."""
    text = f"9999-12-31T23:59:59.9999999{zone}"
    body = json.dumps({"results": [{"dueDate": text}]}).encode()

    def only_item(model: Any) -> Any:
        reader = ItemReader.of(model)
        (item,) = reader.values(iter(open_page(reader, body).raws))
        return item

    assert only_item(Loan) == Loan(LATEST)
    assert only_item(Lent).due_date.replace(tzinfo=UTC) == LATEST == parse_utc(text)
    assert only_item(None) == {"dueDate": text}


@attrs.frozen
class Due:
    due_date: date


@attrs.frozen
class Both:
    due_date: datetime | date


@dataclasses.dataclass
class Owed:
    due_date: datetime


class Paid(pydantic.BaseModel):
    due_date: datetime = pydantic.Field(alias="dueDate")


def test_days_and_times_are_read_as_the_guide_says() -> None:
    """A day is no time, but with pydantic; a time is a day at midnight only."""

    def read_as(model: Any, text: str) -> Any:
        return ItemReader.of(model).value(msgspec.Raw(b'{"dueDate":"%b"}' % text.encode())).due_date

    day, midnight, noon = "2024-01-02", "2024-01-02T00:00:00", "2024-01-02T12:00:00"
    assert read_as(Due, day) == read_as(Due, midnight) == read_as(Due, f"{midnight}Z")
    with pytest.raises(msgspec.ValidationError):
        read_as(Due, noon)
    for model in (Loan, Lent, Owed):
        assert read_as(model, noon).hour == 12
        with pytest.raises(msgspec.ValidationError, match="Invalid RFC3339 encoded datetime"):
            read_as(model, day)
    assert read_as(Loan, noon).tzinfo == read_as(Owed, noon).tzinfo == UTC
    assert read_as(Paid, day) == datetime.fromisoformat(day)
    assert datetime.fromisoformat(f"{noon}Z") == datetime(2024, 1, 2, 12, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match="declare a date beside other types as str"):
        ItemReader.of(Both)


@given(dates, dates)
def test_dates_agree_if_and_only_if_they_are_the_same(one: datetime, other: datetime) -> None:
    """A date that UTC cannot say agrees with itself as it is written, and with no other."""
    assert leaf(one.isoformat()) == leaf(one.isoformat())
    if one != other:
        assert leaf(one.isoformat()) != leaf(other.isoformat())


@pytest.mark.virtual_time
@pytest.mark.parametrize("stamp", [NO_END, NO_BEGINNING, "0001-01-01T00:00:00"])
async def test_a_push_with_an_odd_date_ends_as_any_other(connect: Connect, stamp: str) -> None:
    """Neither its own waiter nor anybody else's is told that polling broke."""

    class Odd(Service):
        def shown(self, held: Held, at: float) -> dict[str, Any]:
            ends = held.key == keys[7] and at >= held.ends
            return super().shown(held, at) | ({"completedOnUtc": stamp} if ends else {})

    service = Odd()
    keys = [service.add("company").key for _ in range(20)]
    client = await connect(service)
    ended = await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert {one.status for one in ended} == {"Success"}
    later = [service.add("company").key for _ in range(20)]
    await asyncio.gather(*(client.wait(key, company_id="company") for key in later))
    assert service.count("get") < 10  # the list is believed as before


@pytest.mark.virtual_time
@pytest.mark.parametrize("stamp", [NO_END, NO_BEGINNING])
async def test_an_odd_date_may_be_a_natural_key_and_is_found_again(stamp: str) -> None:
    """A push whose answer was lost is told from others by its record, odd dates included."""
    service = Service()

    def lose(asked: Asked) -> Answer | None:
        if asked.kind != "push" or service.count("push") > 1:
            return None
        service.carry_out(asked)
        return refusal(502)

    service.answer = lose
    async with coordinator(service) as pushes:
        named = PushRequest("company", "books", "invoices", {"until": stamp}, natural_key="until")
        other = PushRequest("company", "books", "invoices", {"until": stamp, "number": 2})
        outcomes = [await (await pushes.submit(one)) for one in (named, other)]

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 2
