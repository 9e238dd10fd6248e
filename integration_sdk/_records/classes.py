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
        read = _guarded(lambda raw: model.model_validate_json(bytes(raw)))
        return ItemReader(read, lambda _, error: reason(error))
    if not has_fields(get_origin(model) or model):
        raise TypeError(
            "it must be an attrs class, a dataclass, a pydantic v2 model, a TypedDict or a "
            "msgspec Struct"
        )
    nodes = _nodes(model)
    if nodes and all(map(_is_native, nodes)):
        read = msgspec.json.Decoder(model, float_hook=hook).decode
        has_code = any(hasattr(getattr(node, "cls", None), "__post_init__") for node in nodes)
        return ItemReader(_guarded(read) if has_code else read)
    from integration_sdk._records import building  # noqa: PLC0415 - with the first class

    read = _guarded(building.builder(model, numbers))
    return ItemReader(read, partial(building.explain, model))


RAW: Final = ItemReader(bytes)
"""Hands out the bytes of items, undecoded."""


def _guarded(read: Decode) -> Decode:
    """Return *read* without StopIteration, which `map` takes for the end of the items."""

    def guarded(raw: Any) -> Any:
        try:
            return read(raw)
        except StopIteration as error:
            raise RuntimeError(f"the class raised {error!r}") from error

    return guarded


def _nodes(model: Any) -> list[Any]:
    """Return how msgspec sees *model* and all in it; nothing if it cannot read it."""
    try:
        left: list[Any] = [msgspec.inspect.type_info(model)]
    except (TypeError, NameError):
        return []
    found: dict[int, Any] = {}
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left += part
        elif isinstance(part, _NODE) and id(part) not in found:
            found[id(part)] = part
            left += msgspec.structs.astuple(part)
    return list(found.values())


def _is_native(node: Any) -> bool:
    """Whether msgspec reads what *node* describes as it should be read."""
    kind = getattr(node, "cls", None)
    if has_fields(kind) and {one.name: one.encode_name for one in node.fields} != json_names(kind):
        return False
    return not isinstance(node, _ODD)
