"""Marks public classes whose objects come from methods of a client."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def handed_out(kind: Kind) -> Kind:
    """Keep out of ``help(kind)`` how the class is made and what it is made of."""
    own = vars(kind)
    own["__init__"].__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)])
    if "__annotations__" in own:  # up to Python 3.13
        shown = {name: what for name, what in kind.__annotations__.items() if name[0] != "_"}
        kind.__annotations__ = shown
    return kind
