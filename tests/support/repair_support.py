"""Lists that change while they are listed, and a reader of them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal
from urllib.parse import urlencode

import msgspec
from attrs import define, field

from integration_sdk._http.requests import Params
from integration_sdk._list.cursor import Position
from integration_sdk._list.drift import Keys
from integration_sdk._list.page import ItemReader
from integration_sdk._list.repair import RepairWalk
from integration_sdk._list.walk import PageRequest, PageWalk, Walk
from integration_sdk._options_given import MIB
from tests.support.pager_support import open_page
from tests.support.paging_worlds import first_request

READER = ItemReader.of()
KEYS = Keys.of("id", READER.value)


@define
class ChangingList:
    """Records that come, go and move while they are listed; those in *standing* never do.

    The *hidden* ones count in the arithmetic and are not shown: a *share* of all, or those given.

    Attributes:
        moves: Share of the changes that update a record, which moves it: to the end, to the
            beginning, or anywhere.
        counts: What ``totalResults`` is: "all" records, those that are "shown", or "zero".
        silent: Whether ``pageSize`` is answered as requested, whatever the *cap*.
        volatile: Whether a field of each record is different in each answer.
    """

    chance: Random
    records: list[int]
    changes_per_answer: float
    cap: int = 5000
    share: float = 0.0
    linked: bool = True
    hidden: set[int] = field(factory=set)
    moves: float = 0.0
    counts: Literal["all", "shown", "zero"] = "all"
    silent: bool = False
    volatile: bool = False
    versions: Counter[int] = field(init=False, factory=Counter)
    asked: list[Params] = field(init=False, factory=list)
    standing: set[int] = field(init=False)
    _next: int = field(init=False, default=1_000_000)

    def __attrs_post_init__(self) -> None:
        self.hidden |= {record for record in self.records if self._hides()}
        self.standing = set(self.records) - self.hidden

    def _hides(self) -> bool:
        return self.share > 0 and self.chance.random() < self.share

    @property
    def answers(self) -> int:
        return len(self.asked)

    def change(self) -> None:
        while self.chance.random() < self.changes_per_answer / (1 + self.changes_per_answer):
            place = self.chance.randint(0, len(self.records))
            if self.moves and self.chance.random() < self.moves:
                self.update(self.chance.choice([0, len(self.records), place]))
            elif self.chance.random() < 0.5 and place < len(self.records):
                self.standing.discard(self.records.pop(place))
            else:
                self.records.insert(place, self._next)
                self.hidden |= {self._next} if self._hides() else set()
                self._next += 1

    def update(self, place: int) -> None:
        """Update one record, which moves it to *place*."""
        if self.records:
            record = self.records.pop(self.chance.randrange(len(self.records)))
            self.records.insert(place, record)
            self.standing.discard(record)
            self.versions[record] += 1

    def total(self) -> int:
        """Return ``totalResults``."""
        shown = sum(record not in self.hidden for record in self.records)
        return {"all": len(self.records), "shown": shown, "zero": 0}[self.counts]

    def answer(self, params: Params) -> bytes:
        self.asked.append(params)
        assert self.answers < 20_000, "the walk does not end"
        query = dict(params)
        number, asked = int(query["page"]), int(query["pageSize"])
        size = min(asked, self.cap)
        listed = self.records[(number - 1) * size : number * size]
        more = self.linked and number * size < len(self.records)
        following = {**query, "page": str(number + 1)}
        return msgspec.json.encode(
            {
                "results": [self._shown(record) for record in listed if record not in self.hidden],
                "pageNumber": number,
                "pageSize": asked if self.silent else size,
                "totalResults": self.total(),
                "_links": {"next": {"href": f"?{urlencode(following)}"}} if more else {},
            }
        )

    def _shown(self, record: int) -> dict[str, int]:
        read = {"read": self.answers} if self.volatile else {}
        return {"id": record, "version": self.versions[record], **read}


def repair_walk(page_size: int, prefetch: int, start: Position | None = None) -> RepairWalk:
    request = first_request(page_size)
    return RepairWalk(
        request=request,
        start=start or Position(params=request.params),
        prefetch=prefetch,
        max_bytes=64 * MIB,
        size=page_size,
        keys=KEYS,
    )


def page_walk(page_size: int, prefetch: int) -> PageWalk:
    request = first_request(page_size)
    return PageWalk(
        request=request,
        start=Position(params=request.params),
        prefetch=prefetch,
        max_bytes=64 * MIB,
    )


def read(
    walk: Walk, listed: ChangingList, *, stop_after: int | None = None
) -> tuple[list[int], Position]:
    """Read to the end, or some items; pages are looked up at any moment, in any order."""
    items: list[int] = []
    taken = 0
    on_its_way: list[PageRequest] = []
    arrived: dict[PageRequest, bytes] = {}
    while (head := walk.head) is not None:
        on_its_way += walk.to_fetch(waiting=True)
        while head not in arrived:
            listed.change()
            wanted = on_its_way.pop(listed.chance.randrange(len(on_its_way)))
            arrived[wanted] = listed.answer(wanted.params)
            walk.arrived(wanted, len(arrived[wanted]))
        page = open_page(READER, arrived.pop(head))
        shown, skip = walk.opened(page, 100) or (page, page.count)
        on_its_way = [wanted for wanted in on_its_way if wanted in walk.pages]
        arrived = {wanted: body for wanted, body in arrived.items() if wanted in walk.pages}
        taken = taken if walk.current is not head else page.count
        for index in range(skip, page.count):
            items.append(READER.value(shown.raws[index])["id"])
            if len(items) == stop_after:
                return items, walk.position(index + 1)
        on_its_way += walk.to_fetch(waiting=False)
    return items, walk.position(taken)


def standing_list(count: int, *, hidden: range = range(0), cap: int = 5000) -> ChangingList:
    return ChangingList(Random(1), list(range(count)), 0, cap=cap, hidden=set(hidden))
