"""Cursors: valid after any item, anywhere, and refused where they do not belong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Checkpoint
from integration_sdk._http.requests import list_page
from integration_sdk._list.cursor import Position, read_cursor, write_cursor
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, IntegrationError
from tests.list.test_paging import READER, walk_of
from tests.support.pager_support import Records, Serve, ids, open_page
from tests.support.paging_worlds import HOST, World, first_request, follow, honest_worlds

texts = st.text(max_size=20)
positions = st.builds(
    Position,
    params=st.lists(st.tuples(texts, texts), max_size=5).map(tuple),
    skip=st.integers(0, 5000),
    done=st.integers(0, 10**9),
    total=st.none() | st.integers(0, 10**9),
    marks=st.lists(st.integers(0, 2**48 - 1), max_size=6).map(tuple),
)


@given(positions)
def test_a_cursor_names_the_place_it_was_taken_at(position: Position) -> None:
    """Written and read back, any place is the same place."""
    request = first_request()
    again = read_cursor(request, write_cursor(request, position))

    assert sorted(again.params) == sorted(position.params)
    assert (again.skip, again.done, again.total) == (position.skip, position.done, position.total)
    assert again.marks == position.marks


@given(positions, st.integers(0), st.characters(codec="ascii"))
def test_a_damaged_cursor_is_refused(position: Position, place: int, other: str) -> None:
    """No single changed character reads as some other place."""
    request = first_request()
    cursor = write_cursor(request, position)
    place %= len(cursor)
    damaged = cursor[:place] + other + cursor[place + 1 :]

    try:
        again = read_cursor(request, damaged)
    except ConfigurationError:
        return
    assert write_cursor(request, again) == cursor


@pytest.mark.parametrize(
    "cursor", ["", "1", "1.", "\uff12.abc", "1.####", "x.y", None, 7, b"1.abc", "1.AAAA"]
)
def test_what_is_no_cursor_is_refused(cursor: Any) -> None:
    """Anything else than a cursor is an error that says so."""
    with pytest.raises(ConfigurationError, match="damaged"):
        read_cursor(first_request(), cursor)


@pytest.mark.parametrize("around", [" {}", "{}\n", "0{}", "{}=", "\xb2{}", "\uff11{}"])
def test_a_cursor_is_taken_exactly_as_it_was(around: str) -> None:
    """Nothing before or behind it is passed over: it may be half of something else."""
    request = first_request()
    cursor = write_cursor(request, Position(params=request.params))

    with pytest.raises(ConfigurationError):
        read_cursor(request, around.format(cursor))


def test_a_cursor_of_a_newer_version_is_refused() -> None:
    """It is told apart from damage, so that the reader knows what to do."""
    with pytest.raises(ConfigurationError, match="version 2"):
        read_cursor(first_request(), "2.abcdef")


@pytest.mark.parametrize("change", [{"query": "status=void"}, {"orderBy": "id"}, {"path": "/x"}])
def test_a_cursor_of_another_list_is_refused(change: dict[str, str]) -> None:
    """Path, filter and order belong to the cursor; page and page size do not."""
    request = first_request()
    cursor = write_cursor(request, Position(params=request.params))
    other = list_page(Dialect.document(), "pushes.list", companyId="c", query="status=paid")
    if "path" not in change:
        other = request.with_params(**change)

    with pytest.raises(ConfigurationError, match="another list"):
        read_cursor(other, cursor)
    read_cursor(request.with_params(pageSize="77", page="9"), cursor)


def test_a_cursor_is_short() -> None:
    """A place among a hundred million records fits into a URL or a log line."""
    request = first_request(5000)
    params = request.with_params(page="20000").params
    place = Position(params=params, skip=4999, done=10**8, total=10**8)

    assert len(write_cursor(request, place)) < 100


@settings(max_examples=400)
@given(
    honest_worlds("missing"),
    st.sampled_from([1, 3, 6, 8]),
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from([None, 1, 2, 5, 100]),
)
def test_any_item_is_a_place_to_go_on_from(
    world: World, page_size: int, after: int, opaque: bool, smaller: int | None
) -> None:
    """What came before a cursor and what comes behind it is the whole list, in whatever size.

    Where pages lack rows that they count, another size begins no later: some items come again.
    """
    if opaque:
        faults = {number: fault | {"opaque"} for number, fault in world.faults.items()}
        world = World(world.count, world.cap, world.hidden, faults)
    request = first_request(page_size)
    whole = list(follow(world, request.params))

    items, place = read_some(world, page_size, after)
    again = read_cursor(request, write_cursor(request, place), smaller)
    rest, end = read_some(world, page_size, 10**9, again)

    if smaller is not None and world.hidden:
        behind = whole[len(items) :]
        assert rest[len(rest) - len(behind) :] == behind
        return
    assert [*items, *rest] == whole
    assert (place.done, end.done) == (len(items), len(whole))


def read_some(
    world: World, page_size: int, count: int, start: Position | None = None
) -> tuple[list[str], Position]:
    walk = walk_of(page_size, base_url=HOST, start=start)
    items: list[str] = []
    while (head := walk.head) is not None and len(items) < count:
        body = world.body(head.params)
        page = open_page(READER, body)
        _, skip = walk.opened(page, len(body)) or (page, page.count)
        for index in range(skip, page.count):
            if len(items) == count:
                return items, walk.position(index)
            items.append(READER.value(page.raws[index])["id"])
    return items, walk.position(10**9)


async def test_a_list_that_was_read_to_its_end_goes_on_with_what_was_added(
    serve: Serve,
) -> None:
    """The cursor of a finished reading finds later records, and nothing twice."""
    service = Records(items=250, after=lambda _: 0)
    companies = await serve(service)
    pager = companies.list()
    await pager.collect()
    service.items = 420

    assert await companies.list(cursor=pager.cursor).collect() == ids(range(250, 420))


# Checkpoints


async def test_a_run_goes_on_behind_the_page_it_committed(serve: Serve, tmp_path: Path) -> None:
    """Killed after a commit, the next run redoes nothing; killed before, that page."""
    service = Records(items=500, after=lambda _: 0)
    companies = await serve(service)
    file = tmp_path / "invoices.cursor"

    async for page in companies.list(checkpoint=file).pages():
        if page.page_number == 3:
            break
        await page.commit()

    assert await companies.list(checkpoint=str(file)).collect() == ids(range(200, 500))


async def test_any_item_can_be_committed(serve: Serve, tmp_path: Path) -> None:
    """``pager.commit()`` saves the place behind the item handed out last."""
    service = Records(items=500, after=lambda _: 0)
    companies = await serve(service)
    pager = companies.list(checkpoint=tmp_path / "cursor")
    async for item in pager:
        if item["id"] == 123:
            await pager.commit()
            break

    assert await companies.list(checkpoint=tmp_path / "cursor").collect() == ids(range(124, 500))


async def test_a_commit_needs_a_place(serve: Serve) -> None:
    """Without a checkpoint a commit is an error that names the option."""
    page = await (await serve(Records(items=1, after=lambda _: 0))).list()

    with pytest.raises(ConfigurationError, match="checkpoint="):
        await page.commit()


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A save that is cut short, at any point, leaves the last cursor in place."""
    checkpoint = Checkpoint(tmp_path / "cursor")
    checkpoint.save("first")
    (tmp_path / ".cursor.1.new").write_text("hal", encoding="ascii")

    assert checkpoint.load() == "first"
    with checkpoint.path.open(encoding="ascii") as before:
        checkpoint.save("second")
        assert before.read() == "first", "what was there is not written over"
    assert checkpoint.load() == "second"
    checkpoint.clear()
    assert checkpoint.load() is None


def test_a_checkpoint_that_cannot_work_says_so(tmp_path: Path) -> None:
    """A directory in its place, or one that is missing, is an error that names the file."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Checkpoint(tmp_path).load()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Checkpoint(tmp_path / "missing" / "cursor").save("1.a")
    with pytest.raises(ConfigurationError, match="there is no directory"):
        Checkpoint(tmp_path / "missing" / "cursor").load()
    with pytest.raises(ConfigurationError, match="cannot be removed"):
        Checkpoint(tmp_path).clear()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Checkpoint("a\0b").save("1.a")
    with pytest.raises(ConfigurationError, match="cannot be removed"):
        Checkpoint("a\0b").clear()


@pytest.mark.parametrize("wrong", [None, "1.é", "1.\ud800", 1])
def test_what_is_no_cursor_is_not_saved(tmp_path: Path, wrong: Any) -> None:
    """The last cursor stays, and nothing is left beside it."""
    checkpoint = Checkpoint(tmp_path / "cursor")
    checkpoint.save("first")

    with pytest.raises(ConfigurationError, match="cannot be written"):
        checkpoint.save(wrong)

    assert checkpoint.load() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_the_cursor_of_an_error_survives_pickling() -> None:
    """An error can be sent to another process, which goes on there."""
    error = IntegrationError("GET /companies answered 500")
    error.cursor = "1.abc"

    assert pickle.loads(pickle.dumps(error)).cursor == "1.abc"  # noqa: S301 (our own bytes)
