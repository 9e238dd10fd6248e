"""Decodes the items of a list, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal

import msgspec
from attrs import frozen

from integration_sdk._records.pydantic_models import Reason, is_pydantic, reason
from integration_sdk._records.reading import pydantic_reader, shape_of

Numbers = Literal["float", "decimal"]
Decode = Callable[[Any], Any]


def _reason(error: Exception) -> Reason:
    """Return what msgspec, or the model's own code, found wrong, and where."""
    what, _, where = str(error).rpartition(" - at `")
    return (what, where.rstrip("`")) if what else (str(error), "$")


@frozen
class ItemReader:
    """Decodes items of one type.

    Attributes:
        decode: Decodes the bytes of an item.
        build: Makes an item from what `decode` returns; None if that is the item.
        reason: Returns what is wrong, and where, from an exception of `decode` or `build`.
    """

    decode: Decode
    build: Callable[[Any], Any] | None = None
    reason: Callable[[Exception], Reason] = _reason

    @classmethod
    def of(
        cls, model: Any = None, decode: Decode | None = None, *, numbers: Numbers = "float"
    ) -> ItemReader:
        """Return a reader of *model*, or of plain values if it is None.

        Raises:
            ConfigurationError: The model cannot be used.
        """
        hook = Decimal if numbers == "decimal" else None
        if decode is not None:
            return cls(bytes, decode)
        if model is None:
            return cls(msgspec.json.Decoder(float_hook=hook).decode)
        if is_pydantic(model):
            return cls(bytes, pydantic_reader(model, exact=hook is not None), reason)
        shape = shape_of(model)
        return cls(msgspec.json.Decoder(shape.type, float_hook=hook).decode, shape.build)

    def values(self, raws: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator that decodes *raws* one by one, without a Python frame."""
        items: Iterator[Any] = map(self.decode, raws)
        return items if self.build is None else map(self.build, items)
