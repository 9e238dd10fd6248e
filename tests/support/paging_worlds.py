"""Servers that page as they please, and what a patient link-follower reads from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from attrs import Factory, frozen
from hypothesis import strategies as st

PATH = "/companies"
HOST = "http://localhost"
FAULTS = (
    *("empty", "null", "missing", "no_links", "self", "back", "wrong_number", "repeat"),
    *("skip", "absolute", "whole_url", "relative", "foreign_host", "foreign_path", "opaque"),
    *("strings", "no_number", "no_size", "no_total", "total_high", "total_low", "renamed"),
    *("recapped", "pageless", "sizeless", "silent", "other_case"),
)


@frozen
class World:
    """A list and how its server misbehaves, page by page.

    *hidden* items count in the arithmetic and are not shown: pages come short, or empty.
    """

    count: int
    cap: int = 5000
    hidden: frozenset[int] = frozenset()
    faults: Mapping[int, frozenset[str]] = Factory(dict)

    def answer(self, query: dict[str, str]) -> dict[str, Any]:
        """The page envelope for one query; a pure function, so any reader may ask twice."""
        asked = int(query.get("pageSize", 100))
        size = min(asked, self.cap)
        number = int(query["token"][1:]) if "token" in query else int(query.get("page", 1))
        faults = self.faults.get(number, frozenset())
        size = min(size, 2) if "recapped" in faults else size
        page: dict[str, Any] = {
            "results": self._results(number, size, faults),
            "pageNumber": max(number - 1, 1) if "wrong_number" in faults else number,
            "pageSize": asked if "silent" in faults else size,
            "totalResults": self._total(faults),
            "_links": self._links(number, size, query, faults),
        }
        for fault, name in (("no_number", "pageNumber"), ("no_size", "pageSize")):
            if fault in faults:
                del page[name]
        if "no_total" in faults:
            page["totalResults"] = None
        if "strings" in faults:
            page |= {k: str(v) for k, v in page.items() if isinstance(v, int)}
        if "no_links" in faults:
            del page["_links"]
        return page

    def _results(self, number: int, size: int, faults: frozenset[str]) -> list[dict[str, str]]:
        if "empty" in faults:
            return []
        shown = number - 1 if "repeat" in faults and number > 1 else number
        listed = range(self.count)[(shown - 1) * size : shown * size]
        return [{"id": str(index)} for index in listed if index not in self.hidden]

    def _total(self, faults: frozenset[str]) -> int:
        if "total_high" in faults:
            return self.count + 20
        return self.count // 2 if "total_low" in faults else self.count

    def _links(
        self, number: int, size: int, query: dict[str, str], faults: frozenset[str]
    ) -> dict[str, Any]:
        links: dict[str, Any] = {"current": {"href": _href(PATH, query)}}
        if number * size < self.count and "missing" not in faults:
            following = {**query, "page": str(_next_number(number, faults))}
            following.pop("token", None)
            if "renamed" in faults:
                following["Limit"] = following.pop("pageSize", "3")
                following["pageSize"] = str(size)
            if "pageless" in faults:
                following.pop("page")
            if "sizeless" in faults:
                following.pop("pageSize", None)
            if "opaque" in faults:
                following = {
                    "token": f"t{_next_number(number, faults)}",
                    "pageSize": query.get("pageSize", "3"),
                }
            links["next"] = {"href": _written(following, faults)}
        if "null" in faults:
            links["next"] = None if number % 2 else {"href": None}
        return links


def _next_number(number: int, faults: frozenset[str]) -> int:
    if "self" in faults:
        return number
    if "back" in faults:
        return max(number - 2, 1)
    return number + 2 if "skip" in faults else number + 1


PLACES = {
    "foreign_host": f"https://elsewhere.test{PATH}",
    "foreign_path": "/profile",
    "whole_url": HOST + PATH,
    "absolute": f"//localhost{PATH}",
    "other_case": PATH.upper(),
    "relative": "",
}


def _written(query: dict[str, str], faults: frozenset[str]) -> str:
    places = (place for fault, place in PLACES.items() if fault in faults)
    return _href(next(places, PATH), query)


def _href(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}"


class Stuck(Exception):
    """The follower cannot go on."""


def follow(world: World, query: str) -> Iterator[str]:
    """Yield the ids that a patient link-follower reads: the law that every list is held to.

    Raises:
        Stuck: A page is not the one that was asked for, or a link leads elsewhere or back.
    """
    read = set[str]()
    while True:
        params = dict(parse_qsl(query))
        page, asked = world.answer(params), int(params.get("page") or 0)
        number = int(page["pageNumber"]) if "pageNumber" in page else None
        if asked and number is not None and number != asked:
            raise Stuck("number")
        yield from (item["id"] for item in page["results"])
        read.add(query)
        href = ((page.get("_links") or {}).get("next") or {}).get("href")
        if not href:
            return
        if "elsewhere" in href or "profile" in href:
            raise Stuck("unsafe")
        query, here = urlsplit(href).query, asked or number
        names = set(dict(parse_qsl(query)))
        if "page" in names and "pageSize" in params and names <= {"page", "query"}:
            query += f"&pageSize={params['pageSize']}"  # who leaves it out means the same size
        onward = int(dict(parse_qsl(query)).get("page") or 0)
        if query in read or (onward and here and onward <= here):
            raise Stuck("back")


HARMLESS = (
    *("whole_url", "absolute", "relative", "strings", "no_number", "total_high", "total_low"),
    *("sizeless", "silent", "other_case"),
)


@st.composite
def honest_worlds(draw: st.DrawFn) -> World:
    """Lists whose pages hold the same items in whatever size they are asked for."""
    style = draw(st.frozensets(st.sampled_from((*HARMLESS, "opaque")), max_size=2))
    return World(
        count=draw(st.integers(0, 60)),
        cap=draw(st.sampled_from([5000, 2, 4, 5])),
        hidden=draw(st.frozensets(st.integers(0, 60), max_size=20)),
        faults=dict.fromkeys(range(1, 70), style),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Lists of up to 40 items with up to four troubled pages; the calm ones come first."""
    faults = st.frozensets(st.sampled_from(FAULTS), min_size=1, max_size=3)
    return World(
        count=draw(st.integers(0, 40)),
        cap=draw(st.sampled_from([5000, 2])),
        hidden=draw(st.frozensets(st.integers(0, 40), max_size=12)),
        faults=draw(st.dictionaries(st.integers(1, 14), faults, max_size=4)),
    )
