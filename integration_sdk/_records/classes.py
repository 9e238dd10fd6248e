"""Decodes the items of a list, into users' classes if wanted.

cattrs builds attrs classes, dataclasses and TypedDicts, as ``building`` says: ``due_date`` is read
from ``dueDate``, and Decimals have the digits of the JSON. What msgspec reads exactly by itself, a
Struct or TypedDict with the names in the JSON, it reads alone; a pydantic model reads itself.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, get_origin

import msgspec
from attrs import frozen

from integration_sdk._options_given import Numbers
from integration_sdk._records.pydantic_models import check_aliases, is_pydantic, reason
from integration_sdk._records.writing import has_fields, json_names
from integration_sdk.errors import ConfigurationError

Decode = Callable[[Any], Any]
_NODE: Final = (msgspec.inspect.Type, msgspec.inspect.Field)
_ODD: Final = (
    msgspec.inspect.DataclassType,  # it bypasses __init__
    msgspec.inspect.DateType,  # a date with a time is refused
    msgspec.inspect.DateTimeType,
    msgspec.inspect.CustomType,
)
"""What msgspec does not read as it should be read."""


def _reason(_: bytes, error: Exception) -> tuple[str, str]:
    what, _at, where = str(error).rpartition(" - at `")
    return (what, where.rstrip("`")) if what else (str(error), "$")


@frozen
class ItemReader:
    """Decodes items of one type.

    Attributes:
        decode: Decodes the bytes of an item.
        reason: Returns what is wrong with an item, and where, from its bytes and the error.
    """

    decode: Decode
    reason: Callable[[bytes, Exception], tuple[str, str]] = _reason

    @classmethod
    def of(cls, model: Any = None, *, numbers: Numbers = "float") -> ItemReader:
        """Return a reader of *model*, or of plain values if it is None.

        Args:
            model: An attrs class, dataclass, TypedDict, msgspec Struct or pydantic model.
            numbers: What fractions become that have no annotation.

        Raises:
            ConfigurationError: The model cannot be used.
        """
        try:
            return _reader_of(model, numbers)
        except Exception as error:  # of an annotation, or of the class's own making
            name = getattr(model, "__name__", None) or repr(model)
            raise ConfigurationError(f"model={name} cannot be read: {error}") from None


def _reader_of(model: Any, numbers: Numbers) -> ItemReader:
    hook = Decimal if numbers == "decimal" else None
    if model is None:
        return ItemReader(msgspec.json.Decoder(float_hook=hook).decode)
    if is_pydantic(model):
        model.model_rebuild()
        check_aliases(model)
        return ItemReader(lambda raw: model.model_validate_json(bytes(raw)), lambda _, e: reason(e))
    if not has_fields(get_origin(model) or model):
        raise TypeError(
            "it must be an attrs class, a dataclass, a pydantic v2 model, a TypedDict or a "
            "msgspec Struct"
        )
    if _is_native(model):
        return ItemReader(msgspec.json.Decoder(model, float_hook=hook).decode)
    from integration_sdk._records import building  # noqa: PLC0415 - with the first class

    return ItemReader(building.builder(model, numbers), partial(building.explain, model))


RAW: Final = ItemReader(bytes)
"""Hands out the bytes of items, undecoded."""


def _is_native(model: Any) -> bool:
    """Whether msgspec reads *model* alone as it should be read."""
    try:
        left: list[Any] = [msgspec.inspect.type_info(model)]
    except (TypeError, NameError):
        return False
    seen = set[int]()
    while left:
        node = left.pop()
        if isinstance(node, _ODD):
            return False
        kind = getattr(node, "cls", None)
        if has_fields(kind) and {f.name: f.encode_name for f in node.fields} != json_names(kind):
            return False
        seen.add(id(node))
        for part in msgspec.structs.astuple(node):
            parts = part if isinstance(part, tuple) else (part,)
            left += [one for one in parts if isinstance(one, _NODE) and id(one) not in seen]
    return True
