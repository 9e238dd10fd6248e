"""The command that shows push options: as a tree, as a form, as a schema, or as a class."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import Annotated, Final

from attrs import asdict
from cyclopts import Parameter

from integration_sdk.cli._display import show
from integration_sdk.cli._service import FROM_ENVIRONMENT, Flag, Service
from integration_sdk.models import PropertyDescription

TYPES: Final = {"Number": "Decimal", "Boolean": "bool", "DateTime": "datetime"}
SHOWN: Final = 5


async def options(
    data_type: str,
    *,
    company: str,
    connection: str,
    update: Flag = False,
    form: Flag = False,
    schema: Flag = False,
    class_: Annotated[Flag, Parameter(name="--class")] = False,
    service: Service = FROM_ENVIRONMENT,
) -> None:
    """Show what records of a data type a connection accepts.

    Parameters
    ----------
    data_type
        For example invoices.
    company
        Id of the company; `integration-sdk companies` lists them.
    connection
        Id of its connection.
    update
        Show what updates may hold, instead of new records.
    form
        A JSON list of form controls.
    schema
        JSON Schema, Draft 2020-12.
    class_
        The source of an attrs class, for model= of a list, and for records to push.
    """
    async with service.client() as client:
        books = client.company(company).connection(connection)
        described = await books.options(data_type, for_update=update)
    if form:
        show(dumps([asdict(one) for one in described.form()], indent=2, default=str))
    elif schema:
        show(dumps(described.json_schema(), indent=2, default=str))
    else:
        lines = ["from datetime import datetime", "from decimal import Decimal", ""]
        lines += ["from attrs import define"]
        _add_class(lines, data_type[:1].upper() + data_type[1:].removesuffix("s"), described)
        for line in lines if class_ else _tree(described, ""):
            show(line)


def _tree(described: PropertyDescription, indent: str) -> Iterator[str]:
    for name, one in described.properties.items():
        choices = [str(choice.value) for choice in one.options or ()]
        some = ", ".join(choices[:SHOWN]) + f" ... ({len(choices)})" * (len(choices) > SHOWN)
        what = [one.type, "required" * one.required, some and f"one of {some}", one.description]
        yield f"{indent}{name}: {'; '.join(filter(None, what))}"
        yield from _tree(one, f"{indent}  ")


def _add_class(lines: list[str], name: str, described: PropertyDescription) -> str:
    """Add a class to *lines*, behind those that it needs, and return its name."""
    fields = []
    for member, one in described.properties.items():
        kind = TYPES.get(one.type or "", "str")
        if one.properties:
            kind = _add_class(lines, name + member[:1].upper() + member[1:], one)
        kind = f"list[{kind}]" if one.type == "Array" else kind
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in member)
        if snake.isidentifier():  # others can be sent in a dict
            fields.append(f"    {snake}: {kind} | None = None")
    lines += ["", "", "@define", f"class {name}:", *(fields or ["    pass"])]
    return name
