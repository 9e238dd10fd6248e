"""Promises of the polling rules, for all inputs."""

from __future__ import annotations

import gc
import json
import math
import random
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._push.answers import read_brief, read_full, read_rows
from integration_sdk._push.schedule import (
    COHORTS,
    CompletionTimes,
    ListPoll,
    Poll,
    Row,
    Schedule,
    SinglePoll,
)
from integration_sdk._records.codec import decode_json
from integration_sdk._records.shapes import read_operation
from integration_sdk.errors import IntegrationError, MalformedResponse
from integration_sdk.models import PushOperation, RecordRef


@define
class Shown:
    """A row of a list."""

    key: str
    status: str | None


class World:
    """A schedule, and a service that answers its polls as *rng* likes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.schedule = Schedule(rng.random)
        self.now = 0.0
        self.in_flight: list[Poll] = []
        self.keys: dict[str, list[str]] = {}
        self.count = 0

    def add(self) -> None:
        company = f"company-{self.rng.randrange(3)}"
        key = f"key-{self.count}"
        self.count += 1
        self.keys.setdefault(company, []).insert(0, key)
        self.schedule.follow(key, company, "cohort", self.now)

    def forget(self) -> None:
        if self.schedule.pushes:
            self.schedule.forget(self.rng.choice(list(self.schedule.pushes)))

    def follow_anew(self) -> None:
        if self.schedule.pushes:
            push = self.rng.choice(list(self.schedule.pushes.values()))
            self.schedule.forget(push.key)
            self.schedule.follow(push.key, push.company.id, "cohort", self.now)

    def notify(self) -> None:
        self.schedule.notify(f"key-{self.rng.randrange(self.count + 1)}", self.now)

    def sleep(self) -> None:
        wake = self.schedule.wake_at()
        pause = self.rng.choice([0.0, 0.01, 1.0, 60.0])
        self.now = max(self.now, wake) if wake < math.inf else self.now + pause

    def poll(self) -> None:
        self.in_flight += self.schedule.due(self.now, self.rng.randrange(1, 5))

    def answer(self) -> None:
        if not self.in_flight:
            return
        poll = self.in_flight.pop(self.rng.randrange(len(self.in_flight)))
        self.now += 0.01
        if self.rng.random() < 0.15:
            self.schedule.failed(poll, self.now, wait=self.rng.choice([0.0, 5.0]))
        elif isinstance(poll, SinglePoll):
            self.read(poll)
        elif self.rng.random() < 0.1:
            self.schedule.unlistable(poll, self.now)
        else:
            self.listed(poll)

    def read(self, poll: SinglePoll) -> None:
        followed = self.schedule.pushes.get(poll.push.key) is poll.push
        if followed and self.rng.random() < 0.3:
            self.schedule.ended(poll.push, self.now)
        self.schedule.finish(poll, self.now)

    def listed(self, poll: ListPoll) -> None:
        keys = [key for key in self.keys[poll.company.id] if self.rng.random() < 0.9]
        more = True
        while more:
            start = (poll.page - 1) * poll.page_size
            page = keys[start : start + poll.page_size]
            rows: list[Row] = [Shown(key, self.rng.choice(["Pending", "Success"])) for key in page]
            further = start + poll.page_size < len(keys)
            news, more = self.schedule.listed(poll, rows, more=further)
            for push, _ in news:
                self.schedule.ended(push, self.now)
        self.schedule.finish(poll, self.now)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(10, 150))
def test_no_push_is_ever_forgotten(seed: int, steps: int) -> None:
    """Whatever happens, while a push is open something is under way or has its time."""
    world = World(random.Random(seed))
    moves: list[Callable[[], None]] = [
        world.add, world.add, world.poll, world.poll, world.answer, world.answer,
        world.sleep, world.notify, world.forget, world.follow_anew,
    ]  # fmt: skip
    for _ in range(steps):
        world.rng.choice(moves)()
        if world.schedule.pushes and not world.in_flight:
            assert world.schedule.wake_at() < math.inf


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_every_push_is_settled_in_the_end(seed: int, pushes: int) -> None:
    """A service that answers at all sees every open push through, and the schedule ends empty."""
    world = World(random.Random(seed))
    for _ in range(pushes):
        world.add()
    for _ in range(5000):
        if not world.schedule.pushes:
            break
        world.sleep()
        world.poll()
        if world.rng.random() < 0.1:
            world.follow_anew()
        while world.in_flight:
            world.answer()

    assert not world.schedule.pushes


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(10, 200))
def test_a_push_is_never_asked_twice_at_the_same_time(seed: int, steps: int) -> None:
    """No push is read singly while it is being read, and no company's list while it is listed."""
    world = World(random.Random(seed))
    for _ in range(steps):
        world.rng.choice([world.add, world.notify, world.poll, world.poll, world.answer])()
        world.sleep()
        singles = [poll.push.key for poll in world.in_flight if isinstance(poll, SinglePoll)]
        lists = [poll.company.id for poll in world.in_flight if isinstance(poll, ListPoll)]
        assert len(singles) == len(set(singles))
        assert len(lists) == len(set(lists))


def listed_pending(schedule: Schedule, keys: list[str], now: float) -> float:
    """Let the schedule list *keys* as Pending, as soon as it wants to, from *now* on."""
    return listed(schedule, [Shown(key, "Pending") for key in keys], now)


def listed(schedule: Schedule, rows: list[Shown], now: float) -> float:
    """Let the schedule list *rows*, as soon as it wants to, from *now* on; return when."""
    while True:
        now = max(now, schedule.wake_at())
        assert now < 1e6, "no list is asked any more"
        polls = schedule.due(now, 16)
        for poll in polls:
            if isinstance(poll, ListPoll):
                schedule.listed(poll, rows, more=False)
            schedule.finish(poll, now)
        if any(isinstance(poll, ListPoll) for poll in polls):
            return now


@given(st.floats(1, 1000))
def test_a_list_in_time_stays_in_use(age: float) -> None:
    """A list that shows ends as they come is never given up for single polls."""
    schedule = Schedule(lambda: 0.5)
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        schedule.follow(key, "company", "cohort", 0.0)
    now = 0.0
    while now < age:
        now = listed_pending(schedule, keys, now)
        if len(keys) > 20:
            schedule.ended(schedule.pushes[keys.pop()], now, now - 0.5)

    assert listed_pending(schedule, keys, now) < 1.5 * now + 60


# Learning


def test_the_cohorts_used_last_are_remembered() -> None:
    """A process of months meets any number of cohorts; those in use keep what they learned."""
    schedule = Schedule(lambda: 0.5)

    def times(cohort: object) -> CompletionTimes:
        push = schedule.follow("key", "company", cohort, 0.0)
        schedule.forget("key")
        return push.times

    unused, used = times("unused"), times("used")
    for number in range(COHORTS):
        times(number)
        assert times("used") is used

    assert times("unused") is not unused


# Reading


texts = st.text(max_size=8)
stamps = st.sampled_from(
    [
        *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567Z", "2026-01-01T02:00:00+02:00"),
        *("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", None),
    ]
)
references = st.fixed_dictionaries(
    {}, optional={"id": st.none() | texts, "dataType": st.none() | texts, "new": texts}
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "type": st.none() | texts,
        "recordRef": st.none() | references,
        "attachmentId": st.none() | texts,
        "new": texts,
    },
)
operations: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "pushOperationKey": st.text(min_size=1, max_size=8),
        "companyId": texts,
        "status": st.sampled_from(["Pending", "Success", "Failed", "TimedOut", "Odd", "Unknown"]),
    },
    optional={
        "dataConnectionId": st.none() | texts,
        "dataType": st.none() | texts,
        "requestedOnUtc": stamps | st.just("2026-01-01T00:00:00"),
        "completedOnUtc": stamps,
        "data": st.none()
        | st.dictionaries(texts, st.none() | st.integers() | st.just(0.1) | texts),
        "validation": st.none()
        | st.just({"errors": [], "warnings": None})
        | st.just({"errors": [{"itemId": "a", "message": "b"}], "warnings": []}),
        "timeoutInMinutes": st.none() | st.integers(1, 1000) | st.just("60"),
        "statusCode": st.none() | st.integers(200, 500),
        "errorMessage": st.none() | texts,
        "changes": st.none() | st.lists(changes, max_size=2),
        "somethingNew": st.integers(),
    },
)


@given(operations, st.booleans())
def test_the_short_path_reads_what_the_long_one_does(shape: dict[str, Any], exact: bool) -> None:
    """An operation reads the same by the short path as by the one converter."""
    raw = json.dumps(shape).encode()
    assert read_full(raw, exact=exact) == read_operation(decode_json(raw, exact=exact))


def test_what_a_push_changed_is_read() -> None:
    """Every push that succeeds tells of it."""
    ref = {"id": "I-1", "dataType": "invoices"}
    shape = {"pushOperationKey": "k", "companyId": "c", "status": "Success"}
    raw = json.dumps({**shape, "changes": [{"type": "Created", "recordRef": ref}]}).encode()
    [change] = read_full(raw).changes

    assert (change.type, change.record_ref) == (
        "Created",
        RecordRef(id="I-1", data_type="invoices"),
    )


def test_a_connection_may_be_spelt_either_way() -> None:
    """``dataConnectionKey`` is read as ``data_connection_id`` too."""
    shape = {"pushOperationKey": "k", "companyId": "c", "status": "Pending"}
    raw = json.dumps({**shape, "dataConnectionKey": "books"}).encode()
    assert read_full(raw).data_connection_id == "books"
    assert read_full(raw) == read_operation(decode_json(raw))


@given(st.lists(operations, max_size=5), st.booleans())
def test_a_page_shows_keys_and_states_and_gives_rows_in_full(
    shapes: list[dict[str, Any]], more: bool
) -> None:
    """A page read raw has each row's key and status, and any row in full on request."""
    links = {"next": {"href": "/next"}} if more else {"next": None}
    body = json.dumps({"results": shapes, "pageSize": 5, "_links": links}).encode()
    page = read_rows(body)

    assert [(row.key, row.status) for row in page.rows] == [
        (shape["pushOperationKey"], shape["status"]) for shape in shapes
    ]
    assert page.more is more
    wanted = list(range(0, len(shapes), 2))
    assert page.operations(wanted) == [
        read_operation(decode_json(json.dumps(shapes[index]).encode())) for index in wanted
    ]


# Without a list


def without_list(pushes: int) -> Schedule:
    """A schedule of so many pushes of a company that was found to have no list, at second 1."""
    schedule = Schedule(lambda: 0.5)
    for number in range(pushes):
        schedule.follow(f"key-{number}", "company", "cohort", 0.0)
    [page] = schedule.due(1.0, 16)
    assert isinstance(page, ListPoll)
    schedule.unlistable(page, 1.0)
    return schedule


def single_polls(schedule: Schedule, now: float) -> list[SinglePoll]:
    return [poll for poll in schedule.due(now, 16) if isinstance(poll, SinglePoll)]


def test_a_push_that_is_followed_anew_during_a_poll_gets_polls_of_its_own() -> None:
    """A poll that was under way for a key that was given up is nothing to who follows it anew."""
    schedule = without_list(20)
    [old, *_] = single_polls(schedule, 2.0)
    schedule.forget(old.push.key)
    anew = schedule.follow(old.push.key, "company", "cohort", 2.0)
    later = []
    for second in range(30, 60):  # while the answer to the old one is still awaited
        later += single_polls(schedule, float(second))
    schedule.finish(old, 61.0)
    later += single_polls(schedule, 3600.0)

    assert anew in [poll.push for poll in later]
    assert old.push not in [poll.push for poll in later]


class _Waiter:
    """One who waits for a push."""

    fetch_data = True

    def changed(self, key: str, operation: PushOperation) -> None: ...
    def ended(self, key: str, operation: PushOperation) -> None: ...
    def lost(self, key: str, error: IntegrationError) -> None: ...


def test_a_company_without_a_list_keeps_nothing_of_its_pushes() -> None:
    """Only that it has no list is remembered of it once its last push has ended."""
    schedule = without_list(20)
    waiter = _Waiter()
    kept = ref(waiter)
    for push in schedule.pushes.values():
        push.followers = (waiter,)
    del waiter, push
    for key in list(schedule.pushes):
        schedule.forget(key)
    assert schedule.wake_at() == math.inf
    gc.collect()

    assert kept() is None
    schedule.follow("new", "company", "cohort", 2.0)
    [poll] = schedule.due(60.0, 16)
    assert isinstance(poll, SinglePoll)


# Answers


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"pushOperationKey":1,"companyId":"c","status":"Success"}', b'"text"'],
)
def test_what_is_no_operation_has_no_brief(body: bytes) -> None:
    """The first problem is the one that is told."""
    problem = MalformedResponse("the problem")

    with pytest.raises(MalformedResponse, match="the problem"):
        read_brief(body, problem)
