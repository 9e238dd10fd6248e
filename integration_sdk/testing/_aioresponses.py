"""aioresponses on any aiohttp that the SDK supports.

aioresponses 0.7.9 builds responses by hand and does not know two changes in aiohttp 3.14:
``ClientResponse`` requires a ``stream_writer``, and a ``StreamReader`` that holds more than 131,072
bytes pauses its protocol, for which a mocked one has no transport. Both are patched while the mock
is active.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import aiohttp

try:
    import aioresponses
    import aioresponses.core
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "patched_aioresponses needs aioresponses: pip install aioresponses", name=missing.name
    ) from None
from aiohttp.client_proto import ResponseHandler


@contextmanager
def patched_aioresponses(**options: Any) -> Iterator[aioresponses.aioresponses]:
    """Return an active ``aioresponses`` mock that works on this version of aiohttp.

    Args:
        options: Passed on: ``passthrough=[...]``, ``passthrough_unmatched=True``.
    """
    with ExitStack() as stack:
        parameters = inspect.signature(aiohttp.ClientResponse.__init__).parameters
        if "stream_writer" in parameters:  # since aiohttp 3.14
            stack.enter_context(_writer_by_default())
            stack.enter_context(patch.object(aioresponses.core, "stream_reader_factory", _reader))
        yield stack.enter_context(aioresponses.aioresponses(**options))


def _writer_by_default() -> Any:
    original = aiohttp.ClientResponse.__init__

    @functools.wraps(original)
    def with_writer(self: aiohttp.ClientResponse, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
        original(self, *args, **kwargs)

    return patch.object(aiohttp.ClientResponse, "__init__", with_writer)


class _NeverPauses(ResponseHandler):
    """The protocol of a response that has arrived in full."""

    def pause_reading(self) -> None:
        """Do nothing: there is no transport to pause."""

    def resume_reading(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no transport to resume."""


def _reader(loop: Any = None) -> aiohttp.StreamReader:
    return aiohttp.StreamReader(_NeverPauses(loop=loop), limit=2**16, loop=loop)
