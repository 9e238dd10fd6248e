"""The law of lists: what comes is what a patient link-follower reads, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from random import Random
from typing import Any
from urllib.parse import parse_qsl

from attrs import Factory, define
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Listing, Pager
from integration_sdk.errors import PaginationError
from integration_sdk.testing import run_virtual
from tests.support.pager_support import others, settle, taken_impatiently
from tests.support.paging_worlds import Stuck, World, follow, honest_worlds, worlds
from tests.support.virtual_service import Answer, Asked, Proceed, Service, no_answer, refusal

WAYS = ("items", "pages", "raw", "raw_pages", "collect")


def expected(world: World, page_size: int) -> tuple[list[str], bool]:
    """Return what a follower reads, and whether the list cannot be read on behind that."""
    ids: list[str] = []
    try:
        ids.extend(follow(world, f"page=1&pageSize={page_size}"))
    except Stuck:
        return ids, True
    return ids, False


@define
class Mishaps:
    """What happens to requests, by their number: a status, a lost answer, a slow one."""

    chance: Random
    share: float = 0.0
    seconds: tuple[float, ...] = (0.0, 0.01, 3.0)
    asked: list[str] = Factory(list)

    def over(self, world: World) -> Callable[[Asked, Proceed], Answer]:
        """Return what answers as *world* does, or not at first."""
        before = set[str]()

        def answer(asked: Asked, _: Proceed) -> Answer:
            self.asked.append(asked.query)
            seconds = self.chance.choice(self.seconds)
            if asked.query not in before and self.chance.random() < self.share:
                before.add(asked.query)
                trouble = self.chance.choice((429, 500, 503, 504, None, "cut"))
                if isinstance(trouble, int):
                    return refusal(trouble)
                return no_answer() if trouble is None else Answer(body=b"{" * 99, cut=30)
            page = world.answer(dict(parse_qsl(asked.query)))
            return Answer(body=json.dumps(page).encode(), seconds=seconds)

        return answer


def reading(
    world: World, mishaps: Mishaps, read: Callable[[Listing[Any]], Coroutine[Any, Any, Any]]
) -> Any:
    """Return what *read* makes of the list of *world*, in virtual time; no task may be left."""

    async def main() -> Any:
        service = Service(faults=[mishaps.over(world)])
        async with service.client() as client:
            result = await read(client.companies)
            await settle()
            assert not others()
            return result

    return run_virtual(main())


async def handed(pager: Pager[Any], way: str) -> AsyncGenerator[list[str]]:
    """Yield the ids of what comes at a time."""
    if way == "collect":
        yield [item["id"] for item in await pager.collect()]
        return
    reading: Any = aiter(pager) if way == "items" else getattr(pager, way)()
    async with aclosing(reading):
        async for some in reading:
            items = [some] if isinstance(some, dict | bytes) else some
            yield [(json.loads(one) if isinstance(one, bytes) else one)["id"] for one in items]


seeds = st.builds(Random, st.integers(0, 2**32))
sizes = st.sampled_from([1, 3, 6, 8])


@settings(max_examples=180)
@given(worlds(), sizes, st.integers(0, 5), st.sampled_from(WAYS), seeds)
def test_what_comes_is_what_a_follower_reads(
    world: World, page_size: int, prefetch: int, way: str, chance: Random
) -> None:
    """The same items in the same order, and an error where it cannot go on.

    Without pages ahead, which a link may pass over, no page is requested twice.
    """
    wanted = expected(world, page_size)
    mishaps = Mishaps(chance)

    async def read(companies: Listing[Any]) -> tuple[list[str], bool]:
        pager, ids = companies.list(page_size=page_size, prefetch=prefetch), list[str]()
        try:
            async for some in handed(pager, way):
                ids += some
        except PaginationError as error:
            return ids, error.cursor == pager.cursor
        assert pager.report.items == len(ids)
        assert pager.report.requests <= len(mishaps.asked)
        return ids, False

    ids, is_stuck = reading(world, mishaps, read)

    assert is_stuck is wanted[1]
    assert ids == wanted[0] or (way == "collect" and is_stuck)
    assert prefetch or len(set(mishaps.asked)) == len(mishaps.asked)


@settings(max_examples=100)
@given(
    honest_worlds(),
    st.tuples(sizes, st.none() | sizes),
    st.sampled_from(WAYS[:4]),
    seeds,
    st.lists(st.integers(0, 12), max_size=4),
)
def test_any_place_is_one_to_go_on_from(
    world: World, page_sizes: tuple[int, int | None], way: str, chance: Random, stops: list[int]
) -> None:
    """Runs that stop anywhere, among mishaps, and go on from their cursors, read the list once.

    Later runs may ask for pages of another size.
    """
    page_size, later = page_sizes
    wanted, _ = expected(world, page_size)
    mishaps = Mishaps(chance, share=0.2)

    async def read(companies: Listing[Any]) -> list[str]:
        ids, cursor = list[str](), None
        for stop in (*stops, 10**6):
            begun = len(ids)
            pager = companies.list(page_size=page_size if cursor is None else later, cursor=cursor)
            async with aclosing(handed(pager, way)) as parts:
                async for some in parts:
                    ids += some
                    if len(ids) - begun >= stop:
                        break
            cursor = pager.cursor
        return ids

    assert reading(world, mishaps, read) == wanted


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40), max_size=12), st.sampled_from(["items", "pages", "raw_pages"]))
def test_nothing_is_lost_by_who_stops_waiting(turns: list[int], way: str) -> None:
    """However often the wait for what comes next is cancelled, the cursor goes on."""
    world = World(40)

    async def read(companies: Listing[Any]) -> list[str]:
        ids, cursor = list[str](), None
        for patience in (*turns, None):
            pager = companies.list(page_size=7, cursor=cursor)
            parts = handed(pager, way)
            while (some := await taken_impatiently(parts, patience)) is not None:
                ids += some
            cursor = pager.cursor
            await asyncio.sleep(0)
        return ids

    assert reading(world, Mishaps(Random(0), seconds=(0.0,)), read) == [
        str(index) for index in range(40)
    ]
