"""The iterators over a `Stream`: by item, by chunk, by page.

Each iterator is the only owner of its stream. When the iterator is freed (after a ``break``, say,
or an error in the loop's body), the stream stops and cancels its requests. The iterators are
classes, not async generators, so that ``anext()`` may be called again after an error, and so
that they can be freed without an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Generic, Self, TypeVar

from attrs import field, frozen

from integration_sdk._answer_parts import Page
from integration_sdk._list.checkpoint import Checkpoint
from integration_sdk._list.page import NO_PAGE
from integration_sdk._list.reader import Stream
from integration_sdk.errors import ConfigurationError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@frozen(kw_only=True)
class ListPage(Page[T_co]):
    """A `Page` that knows where the list continues.

    Attributes:
        cursor: The place after this page, for ``list(cursor=...)``.
    """

    cursor: str = field(repr=False)
    _checkpoint: Checkpoint | None = field(default=None, repr=False, eq=False)

    async def commit(self) -> None:
        """Save `cursor` to the checkpoint: this page and all before it are done.

        If a run is killed, the next one repeats only the page that was not committed.

        Raises:
            ConfigurationError: ``list()`` was given no checkpoint, or it cannot be written.
        """
        await save(self._checkpoint, self.cursor)


class _Reading(Generic[T]):
    """Base of the iterators: stops its `Stream` when it is closed or freed."""

    __slots__ = ("_ready", "_stream")

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream
        self._ready: Iterator[T] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading and cancel the requests that are under way."""
        self._stream.stop()
        self._ready = iter(())

    def __del__(self) -> None:
        self._stream.stop()


class Items(_Reading[T], AsyncIterator[T]):
    """The items of a list, one by one."""

    __slots__ = ()

    async def __anext__(self) -> T:
        while True:
            try:
                for item in self._ready:
                    return item
            except Exception as error:  # a model's own code may raise anything
                self._stream.unfit(error)
                continue
            ready = await self._stream.more()
            if ready is None:
                raise StopAsyncIteration
            self._ready = ready


class Chunks(_Reading[T], AsyncIterator[list[T]]):
    """The items of a list, *size* at a time."""

    __slots__ = ("_rest", "_size")

    def __init__(self, stream: Stream[T], size: int) -> None:
        super().__init__(stream)
        self._size = size
        self._rest: list[T] = []

    async def aclose(self) -> None:
        """Stop reading, and drop a chunk that is not full yet."""
        await super().aclose()
        self._rest = []

    async def __anext__(self) -> list[T]:
        self._stream.hold()
        while True:
            missing = self._size - len(self._rest)
            self._stream.collect(self._rest, islice(self._ready, missing))
            if len(self._rest) == self._size:
                break
            ready = await self._stream.more()
            if ready is None:
                break
            self._ready = ready
        self._stream.release()
        if not self._rest:
            raise StopAsyncIteration
        chunk, self._rest = self._rest, []
        return chunk


class Pages(_Reading[T], AsyncIterator[ListPage[T]]):
    """The pages of a list, one by one."""

    __slots__ = ("_checkpoint",)

    def __init__(self, stream: Stream[T], checkpoint: Checkpoint | None) -> None:
        super().__init__(stream)
        self._checkpoint = checkpoint

    async def __anext__(self) -> ListPage[T]:
        results = await self._stream.next_page()
        if results is None:
            raise StopAsyncIteration
        return self._page(results)

    async def _next_or_empty(self) -> ListPage[T]:
        """Return the next page; an empty one if there is nothing to read, as with ``limit=0``."""
        return self._page(await self._stream.next_page() or [])

    def _page(self, results: list[T]) -> ListPage[T]:
        items = self._stream.items
        page = items.page if items else NO_PAGE
        return ListPage(
            results=results,
            page_number=page.number or 0,
            page_size=page.size or 0,
            total_results=page.total or 0,
            links=page.links,
            extra=page.extra,
            cursor=self._stream.cursor,
            checkpoint=self._checkpoint,
        )


async def save(checkpoint: Checkpoint | None, cursor: str) -> None:
    """Save *cursor* to *checkpoint* without blocking the event loop."""
    if checkpoint is None:
        raise ConfigurationError("there is no checkpoint to commit to; use list(checkpoint=path)")
    await asyncio.to_thread(checkpoint._saving(cursor))
