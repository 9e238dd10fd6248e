"""Reads pushes from the lines of an NDJSON file or pipe, no faster than they are pushed.

A thread reads, since reading a pipe may block for any time, and passes lines to the loop. Records
are sent with exact fractions.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import stat
import sys
from collections import Counter, deque
from contextlib import suppress
from decimal import Decimal
from os import fstat
from pathlib import Path
from threading import Semaphore, Thread
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import msgspec
from attrs import Factory, define, frozen

from integration_sdk._push.agreement import value_at
from integration_sdk._records.codec import encode_sorted
from integration_sdk.errors import ConfigurationError, InvalidRecord
from integration_sdk.models import PushRequest

AHEAD: Final = 256
"""Lines that are read ahead."""
FORMAT: Final = (
    "a JSON object a line (NDJSON), in UTF-8 and not compressed; such lines are made from CSV by "
    "`mlr --icsv --ojsonl cat FILE`, and from a JSON array by `jq -c '.[]' FILE`"
)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OBJECT: Final = re.compile(rb"\s*\{")
_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode


@frozen
class Line:
    """A line of the input; *number* is from 1, as editors count."""

    number: int
    text: bytes


class Lines:
    """The lines of *source*, a file or ``-``; a ``with`` block around one ``async for``.

    Attributes:
        size: Bytes to read; None for a pipe.

    Raises:
        ConfigurationError: The source cannot be opened or read.
    """

    def __init__(self, source: str) -> None:
        self._name = "standard input" if source == "-" else source
        self._file = self._opened(source)
        self.size = _size(self._file)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._room = Semaphore(AHEAD)
        self._ready: deque[bytes] = deque()
        self._last = Line(0, b"")
        self._failure: OSError | None = None
        self._over = self._stopped = False
        # A daemon, because the read of a pipe that nobody writes to cannot be ended.
        self._thread = Thread(target=self._read, name="integration_sdk lines", daemon=True)

    def _opened(self, source: str) -> BinaryIO:
        try:
            if source == "-":
                if not sys.stdin:
                    raise ConfigurationError("cannot read standard input: it is closed")
                return open(sys.stdin.fileno(), "rb", closefd=False)  # no path
            return Path(source).open("rb")
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._name}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if not self._thread.ident:
            self._file.close()

    @property
    def read(self) -> int:
        """The number of the last line that was yielded."""
        return self._last.number

    def stop(self) -> None:
        """Yield no more lines."""
        self._over = self._stopped = True
        self._room.release()
        self._news.set()

    def __aiter__(self) -> Self:
        self._thread.start()
        return self

    async def __anext__(self) -> Line:
        while not self._ready and not self._over:
            self._news.clear()
            await self._news.wait()
        if self._failure and not self._ready:
            raise ConfigurationError(f"cannot read {self._name} on: {self._failure.strerror}")
        if self._stopped or not self._ready:
            raise StopAsyncIteration
        text = self._ready.popleft()
        self._room.release()
        self._last = Line(self._last.number + 1, text)
        return self._last

    # In the thread

    def _read(self) -> None:
        failure = None
        try:
            with self._file:
                for text in self._file:
                    self._room.acquire()
                    if self._stopped:
                        return
                    self._tell(self._take, text)
        except OSError as error:
            failure = error
        self._tell(self._end, failure)

    def _tell(self, hear: Any, news: object) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(hear, news)

    # Back in the loop

    def _take(self, text: bytes) -> None:
        self._ready.append(text)
        self._news.set()

    def _end(self, failure: OSError | None) -> None:
        self._failure, self._over = failure, True
        self._news.set()


def _size(file: BinaryIO) -> int | None:
    found = fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


class NoRecord(InvalidRecord):
    """The line is not a JSON object."""


@define
class Plan:
    """How a line becomes a push.

    Attributes:
        reference: Path of the record's own name. None names it after its content: a record
            keeps its name if it moves, even to another file, or if its members are reordered,
            but not if it is changed. The second of two equal records is ``….2``.
        update_id: Path of the id of the record to update; None creates records.
        natural_key: As `PushRequest` has it.
    """

    company_id: str
    connection_id: str
    data_type: str
    reference: str | None = None
    update_id: str | None = None
    natural_key: str | None = None
    timeout_minutes: int | None = None
    _seen: Counter[int] = Factory(Counter)

    def request(self, line: Line) -> PushRequest:
        """Return the push request for *line*.

        Raises:
            InvalidRecord: The line holds no record, or the record has no value at a given path.
        """
        record = decode(line)
        record_id = self.update_id and _name(record, self.update_id, "--update-id")
        named = self.reference and _name(record, self.reference, "--reference")
        return PushRequest(
            self.company_id,
            self.connection_id,
            self.data_type,
            record,
            reference=named or self._content_name(record, record_id),
            record_id=record_id,
            timeout_minutes=self.timeout_minutes,
            natural_key=self.natural_key,
        )

    def _content_name(self, record: dict[str, Any], record_id: str | None) -> str:
        lane = (self.company_id, self.connection_id, self.data_type)
        digest = hashlib.sha256(encode_sorted((lane, record_id, record))).digest()
        short = int.from_bytes(digest[:8])
        self._seen[short] += 1
        again = f".{self._seen[short]}" if self._seen[short] > 1 else ""
        return digest[:16].hex() + again


def decode(line: Line) -> dict[str, Any]:
    """Return the record of a line, with exact fractions.

    Raises:
        NoRecord: The line holds no record.
    """
    text = line.text.removeprefix(_BYTE_ORDER_MARK) if line.number == 1 else line.text
    if not _OBJECT.match(text):  # not decoded: a file that is one list may be larger than memory
        shown = text[:200].strip()[:40].decode(errors="replace")
        raise NoRecord(f"line {line.number} is no JSON object, but {shown}")
    try:
        record: dict[str, Any] = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise NoRecord(f"line {line.number} is no JSON: {error}") from None
    return record


def _name(record: dict[str, Any], path: str, option: str) -> str:
    value = value_at(record, path)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidRecord(f"the record has no text or whole number at {path!r} ({option})")
    return str(value)
