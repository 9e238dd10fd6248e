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
from typing import Annotated, Any, Final, Self

import msgspec
from attrs import define, field
from cyclopts import Parameter
from cyclopts.validators import Number

from integration_sdk._push.agreement import value_at
from integration_sdk._records.codec import encode_sorted
from integration_sdk.cli._display import usable
from integration_sdk.errors import ConfigurationError, InvalidRecord
from integration_sdk.models import PushRequest

FORMAT: Final = (
    "The input must be one JSON object per line (NDJSON), in UTF-8 and not compressed; "
    "`mlr --icsv --ojsonl cat FILE` makes it of CSV, and `jq -c '.[]' FILE` of a JSON array"
)
_LONGEST: Final = 16 << 20  # bytes of a line from a pipe, which is read ahead by twice as much
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OBJECT: Final = re.compile(rb"\s*\{")
_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode  # fractions are sent exactly


class Lines:
    """The lines of *source*, a file or ``-``, with their numbers from 1; a ``with`` block.

    Attributes:
        size: Bytes to read; None for a pipe or a terminal.
        done: Bytes of the lines that were yielded.

    Raises:
        ConfigurationError: The source cannot be opened or read.
    """

    def __init__(self, source: str) -> None:
        is_stdin = source == "-"
        self._name = "standard input" if is_stdin else source
        if is_stdin and not sys.stdin:
            raise ConfigurationError("cannot read standard input: it is closed")
        with usable(f"cannot read {self._name}"):
            path = sys.stdin.fileno() if is_stdin else source
            self._file = open(path, "rb", closefd=not is_stdin)  # noqa: SIM115 - see __exit__
            found = os.fstat(self._file.fileno())
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else None
        self._is_pipe = stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)
        self.done, self._stopped, self._pipe = 0, False, asyncio.StreamReader(_LONGEST)
        self._transport: asyncio.BaseTransport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def stop(self) -> None:
        self._stopped = True
        if self._transport is not None:
            self._transport.close()  # which ends what is read; more may come through the pipe

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        if self._is_pipe:  # reading it could block the loop for ever
            protocol = asyncio.StreamReaderProtocol(self._pipe)
            connected = asyncio.get_running_loop().connect_read_pipe(lambda: protocol, self._file)
            self._transport, _ = await connected
        number = 0
        while not self._stopped:
            with usable(f"cannot read the rest of {self._name}"):
                try:
                    line = await self._pipe.readline() if self._is_pipe else self._file.readline()
                except ValueError:  # of asyncio
                    what = f"there are more than {_LONGEST:,} bytes in a line"
                    raise ConfigurationError(f"{what}. {FORMAT}") from None
            if not line:
                return
            number, self.done = number + 1, self.done + len(line)
            if line.strip() and not self._stopped:
                yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


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
    once, and refuses it for a different record. Without it, records are known by content: lines
    and members may move, but a corrected line is another record."""

    natural_key: str | None = None
    """Path of a field that is different in each record, such as invoiceNumber. It identifies a
    push whose answer was lost."""

    update_id: str | None = None
    """Path of the id of the record to update. Without it, records are created."""

    timeout_minutes: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Minutes after which the service gives up on a push that is still Pending."""

    _seen: Counter[str] = field(init=False, factory=Counter)

    def request(self, line: bytes) -> PushRequest:
        """Return the push request for a line.

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
        name = hashlib.sha256(encode_sorted((lane, record_id, record))).hexdigest()[:32]
        self._seen[name] += 1
        return f"{name}.{self._seen[name]}" if self._seen[name] > 1 else name


def _record(line: bytes) -> dict[str, Any]:
    if not _OBJECT.match(line):  # not decoded: a file that is one list may be larger than memory
        shown = line[:200].strip()[:40].decode(errors="replace")
        raise InvalidRecord(f"this is not a JSON object: {shown}. {FORMAT}")
    try:
        record: dict[str, Any] = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise InvalidRecord(f"this is not JSON: {error}") from None
    return record


def _name(record: dict[str, Any], path: str, option: str) -> str:
    value = value_at(record, path)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InvalidRecord(f"the record has no text or whole number at {path!r} ({option})")
    return str(value)
