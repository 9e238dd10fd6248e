"""Checks a record against the push options before it is pushed.

The service describes which records of a data type a company's platform accepts (`PushOptions`).
``check`` finds problems in a record; ``json_schema`` and ``form`` give the same rules to other
tools. A missing required property, a value that is not a choice and a wrong type are errors. All
else is a warning, because only the platform can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from attrs import Factory, define, fields, frozen

from integration_sdk._options.description import Choices, Field, read_fields
from integration_sdk._options.render import FormControl, render_form, render_schema
from integration_sdk._records.codec import decode_json, encode_record, encode_value
from integration_sdk.errors import InvalidRecord
from integration_sdk.models import Problem, ProblemCode, PropertyDescription


def refuse(problems: list[Problem]) -> None:
    """Raise `InvalidRecord` if any of *problems* is an error."""
    errors = [problem for problem in problems if problem.is_error]
    if errors:
        shown = "; ".join(str(problem).removesuffix(".") for problem in errors[:5])
        more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise InvalidRecord(
            f"not sent: the push options do not allow it: {shown}{more}", problems=errors
        )


@frozen(kw_only=True, repr=False)
class PushOptions(PropertyDescription):
    """The records of one data type that one connection accepts.

    Source: "Push options description (response of the options endpoint)".
    """

    def __repr__(self) -> str:
        required = sum(member.required for member in self.properties.values())
        count = f"{len(self.properties)} properties, {required} required"
        return f"<PushOptions of {self.display_name or 'a record'}: {count}>"

    @classmethod
    def of(cls, description: PropertyDescription) -> PushOptions:
        """Return *description* as `PushOptions`."""
        names = (attribute.name for attribute in fields(PropertyDescription))
        return cls(**{name: getattr(description, name) for name in names})

    @cached_property
    def _fields(self) -> Field:
        return read_fields(self)

    def check(self, record: Any) -> list[Problem]:
        """Return the problems of *record*; an empty list if there are none.

        The record is checked as it would be sent, so it may hold Decimals and dates, or be an
        instance of an attrs class, dataclass, pydantic model or msgspec Struct.

        Returns:
            Problems, in the order of the record; missing fields of an object come last. If one of
            them ``is_error``, the push would fail; warnings do not stop it.

        Source: "Push options description", rules 1 to 3.
        """
        try:
            plain = decode_json(encode_record(record), numbers="decimal")
        except InvalidRecord as error:
            return [Problem("", ProblemCode.WRONG_TYPE, str(error))]
        found = _Check()
        found.members(self._fields, plain, "")
        return found.problems

    def json_schema(self) -> dict[str, Any]:
        """Return a JSON Schema (Draft 2020-12) that rejects records with errors.

        Warnings are not part of it; rules in plain words are in the descriptions. A DateTime has
        a ``pattern`` and no ``format``: ``date-time`` would reject plain dates and times without
        an offset, which the service accepts.
        """
        return render_schema(self._fields)

    def form(self) -> list[FormControl]:
        """Return a control for each property, in the service's order.

        Source: "Push options description", rule 4.
        """
        return render_form(self._fields)


@define
class _Check:
    """Walks through one record and collects its problems."""

    problems: list[Problem] = Factory(list)

    def members(self, field: Field, record: dict[str, Any], path: str) -> None:
        prefix = f"{path}." if path else ""
        for name, value in record.items():
            if known := field.members.get(name):
                self.value(known, value, f"{prefix}{name}")
            elif field.members and value is not None:  # generated clients write all, as null
                known_names = {member.casefold(): member for member in field.members}
                end = _end(name, known_names)
                words = f"{_shown(name)} is not listed for {field.label} and may be dropped{end}"
                self._add(f"{prefix}{name}", ProblemCode.UNLISTED, words, is_error=False)
        for name, member in field.members.items():
            if member.required and name not in record:
                self._missing(member, f"{prefix}{name}")

    def value(self, field: Field, value: Any, path: str) -> None:
        choices = field.choices
        if field.required and field.is_empty(value):
            self._missing(field, path)
        elif value is None:
            return
        elif choices is not None and choices.closed and value not in choices:
            self._no_choice(field, choices, value, path)
        elif not (choices is not None and choices.closed) and not field.kind.fits(value):
            words = f"{field.label} must be {field.kind.words}, not {_shown(value)}."
            self._add(path, ProblemCode.WRONG_TYPE, words)
        else:
            if choices is not None and value not in choices:
                self._no_choice(field, choices, value, path)
            self._inside(field, value, path)

    def _inside(self, field: Field, value: Any, path: str) -> None:
        if field.members and type(value) is dict:
            self.members(field, value, path)
        elif field.element is not None:
            for index, element in enumerate(value):
                self.value(field.element, element, f"{path}[{index}]")

    def _missing(self, field: Field, path: str) -> None:
        right = field.kind.words if field.choices is None else _any_of(field.choices)
        self._add(path, ProblemCode.REQUIRED, f"{field.label} is required: give {right}.")

    def _no_choice(self, field: Field, choices: Choices, value: Any, path: str) -> None:
        must = "must" if choices.closed else "should"
        end = _end(str(value), choices.spellings)
        words = f"{field.label} {must} be {_any_of(choices)}, not {_shown(value)}{end}"
        self._add(path, ProblemCode.NOT_A_CHOICE, words, is_error=choices.closed)

    def _add(self, path: str, code: ProblemCode, words: str, *, is_error: bool = True) -> None:
        self.problems.append(Problem(path, code, words, is_error))


def _end(wrong: str, right: Mapping[str, Any]) -> str:
    """Return the end of a sentence; *right* says what is meant by a label, or in another case."""
    meant = right.get(wrong.casefold())
    return "." if meant is None else f"; did you mean {_shown(meant)}?"


def _shown(value: Any) -> str:
    """Return *value* as JSON, shortened to 60 characters."""
    text = encode_value(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _any_of(choices: Choices) -> str:
    """Return the choices to follow "must be": all of them, or three if there are more than six."""
    several = len(choices.listed) > 6  # or thousands: no time to write them all
    values = [_shown(choice.value) for choice in choices.listed[: 3 if several else None]]
    if several:
        return f"one of {len(choices.listed)} choices such as {', '.join(values)}"
    return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
