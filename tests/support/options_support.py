"""Descriptions of push options, in few words."""

from __future__ import annotations

from typing import Any

from integration_sdk import PropertyDescription, PushOptions
from integration_sdk._records.shapes import structure

Json = dict[str, Any]


def options(**properties: Json) -> PushOptions:
    described = {"type": "Object", "displayName": "Invoice", "properties": properties}
    return PushOptions.of(structure({**described, "required": True}, PropertyDescription))


def prop(kind: str = "String", *, required: bool = False, **more: Any) -> Json:
    return {"type": kind, "required": required, **more}


def choices(*values: str, kind: str = "String", required: bool = False) -> Json:
    listed = [{"value": value, "displayName": value.title()} for value in values]
    return prop(kind, required=required, options=listed)
