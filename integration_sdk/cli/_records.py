"""NDJSON in, push requests out: lines are read no faster than they are pushed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from io import FileIO
from typing import Annotated, Any, Final, Self

import msgspec
from attrs import Factory, define, field, frozen
from cyclopts import Parameter
from cyclopts.validators import Number

from integration_sdk._push.agreement import value_at
from integration_sdk._records.codec import encode_sorted
from integration_sdk.cli._ends import usable
from integration_sdk.errors import ConfigurationError, InvalidRecord
from integration_sdk.models import PushRequest

FORMAT: Final = (
    "one JSON object per line (NDJSON), in UTF-8 and not compressed; it is made from CSV by "
    "`mlr --icsv --ojsonl cat FILE`, and from a JSON array by `jq -c '.[]' FILE`"
)
_AT_ONCE: Final = 1 << 16
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OBJECT: Final = re.compile(rb"\s*\{")
_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode  # fractions are sent exactly


@frozen
class Line:
    """A line of the input; *number* is from 1, as editors count."""

    number: int
    text: bytes

    @property
    def size(self) -> int:
        """Bytes of it in the file."""
        return len(self.text) + 1


class Lines:
    """The lines of *source*, a file or ``-``; a ``with`` block around one ``async for``.

    Attributes:
        size: Bytes to read; None for a pipe or a terminal.
        read: Number of the last line that was yielded.
        at_end: Whether all lines were yielded.

    Raises:
        ConfigurationError: The source cannot be opened or read.
    """

    def __init__(self, source: str) -> None:
        self._name = "standard input" if source == "-" else source
        self._file = self._opened(source)
        found = os.fstat(self._file.fileno())
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else None
        self.read, self.at_end = 0, False
        self._stopped, self._news = False, asyncio.Event()

    def _opened(self, source: str) -> FileIO:
        if source == "-" and not sys.stdin:
            raise ConfigurationError("cannot read standard input: it is closed")
        with usable(f"cannot read {self._name}"):
            return FileIO(sys.stdin.fileno(), closefd=False) if source == "-" else FileIO(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def stop(self) -> None:
        """Yield no more lines."""
        self._stopped = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Line]:
        held = bytearray()
        while chunk := await self._chunk():
            held += chunk
            if b"\n" not in chunk:
                continue
            *texts, held = held.split(b"\n")
            for text in texts:
                if self._stopped:
                    return
                yield self._line(text)
        if held and not self._stopped:
            yield self._line(held)
            held.clear()
        self.at_end = not (held or self._stopped)

    def _line(self, text: bytearray) -> Line:
        self.read += 1
        return Line(self.read, bytes(text))

    async def _chunk(self) -> bytes:
        """Return some bytes as soon as there are any; none at the end, or once stopped."""
        if self.size is None:
            await self._readable()
        with usable(f"cannot read the rest of {self._name}"):
            return b"" if self._stopped else self._file.read(_AT_ONCE) or b""

    async def _readable(self) -> None:
        """Wait for a pipe, whose read could block the loop for ever."""
        loop, file = asyncio.get_running_loop(), self._file.fileno()
        try:
            loop.add_reader(file, self._news.set)
        except PermissionError:  # epoll takes no file that is always ready, such as /dev/null
            return
        try:
            await self._news.wait()
        finally:
            loop.remove_reader(file)
        if not self._stopped:
            self._news.clear()


class NoRecord(InvalidRecord):
    """The line is not a JSON object."""


@Parameter(name="*")
@define(kw_only=True)
class RecordOptions:
    """How a line becomes a push. ``data_type`` is the option ``--type``."""

    company: str
    """Id of the company."""

    connection: str
    """Id of the company's connection to push to."""

    data_type: Annotated[str, Parameter(name="--type")]
    """Data type of the records, such as invoices."""

    reference: str | None = None
    """Path of a field that names each record, such as invoiceNumber. A journal pushes each name
    once, and refuses it for a different record. Without it, records are recognized by content:
    lines may move within and between files and members within a line, but a corrected line is
    another record."""

    natural_key: str | None = None
    """Path of a field that is different in each record, such as invoiceNumber. It identifies a
    push whose answer was lost."""

    update_id: str | None = None
    """Path of the id of the record to update. Without it, records are created."""

    timeout_minutes: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Minutes after which the service gives up on a push that is still Pending."""

    _seen: Counter[int] = field(init=False, default=Factory(Counter))

    def request(self, line: Line) -> PushRequest:
        """Return the push request for *line*.

        Raises:
            InvalidRecord: The line holds no record, or the record has no value at a given path.
        """
        record = _record(line)
        record_id = self.update_id and _name(record, self.update_id, "--update-id")
        named = self.reference and _name(record, self.reference, "--reference")
        return PushRequest(
            self.company,
            self.connection,
            self.data_type,
            record,
            reference=named or self._content_name(record, record_id),
            record_id=record_id,
            timeout_minutes=self.timeout_minutes,
            natural_key=self.natural_key,
        )

    def _content_name(self, record: dict[str, Any], record_id: str | None) -> str:
        """Return a name that depends on content only, with ``.2`` for a second equal record."""
        lane = (self.company, self.connection, self.data_type)
        digest = hashlib.sha256(encode_sorted((lane, record_id, record))).digest()
        short = int.from_bytes(digest[:8])
        self._seen[short] += 1
        again = f".{self._seen[short]}" if self._seen[short] > 1 else ""
        return digest[:16].hex() + again


def _record(line: Line) -> dict[str, Any]:
    text = line.text.removeprefix(_BYTE_ORDER_MARK) if line.number == 1 else line.text
    if not _OBJECT.match(text):  # not decoded: a file that is one list may be larger than memory
        shown = text[:200].strip()[:40].decode(errors="replace")
        raise NoRecord(f"line {line.number} is not a JSON object: {shown}")
    try:
        record: dict[str, Any] = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise NoRecord(f"line {line.number} is not JSON: {error}") from None
    return record


def _name(record: dict[str, Any], path: str, option: str) -> str:
    value = value_at(record, path)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidRecord(f"the record has no text or whole number at {path!r} ({option})")
    return str(value)
