"""Checks a record against the push options before it is pushed.

The service describes which records of a data type a company's platform accepts (`PushOptions`).
``check`` finds problems in a record; ``json_schema`` and ``form`` make the same rules available to
other tools. What the document rules out is an error: a required property that is missing, a value
that is not a choice, a wrong type. All else is a warning, since only the platform can tell.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import cached_property
from typing import Any

from attrs import Factory, define, fields, frozen

from integration_sdk._options import words
from integration_sdk._options.description import Field, read_fields
from integration_sdk._options.form import FormControl, render_form
from integration_sdk._options.render import render_schema
from integration_sdk._records.codec import decode_json, encode_record
from integration_sdk.errors import InvalidRecord
from integration_sdk.models import PropertyDescription


class ProblemCode(StrEnum):
    """What is wrong, as a code for programs."""

    REQUIRED = "required"
    """A required property is missing, null or empty."""
    NOT_A_CHOICE = "not_a_choice"
    """The value is not one of those listed."""
    WRONG_TYPE = "wrong_type"
    """The value is not of the property's type."""
    UNLISTED = "unlisted"
    """The options do not list the property; the platform may drop it."""
    RULE = "rule"
    """A rule in plain words, such as a maximum length, is broken."""


class Severity(StrEnum):
    """ERROR: the push would fail. WARNING: it may fail, or lose part of the record."""

    ERROR = "error"
    WARNING = "warning"


@frozen
class Problem:
    """A problem in a record, found by checking it against the push options.

    Attributes:
        path: For example ``lineItems[2].quantity``; empty for the record itself.
        code: See `ProblemCode`.
        message: A sentence that says what would be right.
        severity: See `Severity`.
    """

    path: str
    code: ProblemCode
    message: str
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        """Whether this is an error, not only a warning."""
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def refuse(problems: list[Problem]) -> None:
    """Raise `InvalidRecord` if any of *problems* is an error."""
    errors = [problem for problem in problems if problem.is_error]
    if errors:
        told = "; ".join(str(problem).removesuffix(".") for problem in errors[:5])
        more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise InvalidRecord(f"not sent: the options do not allow it: {told}{more}", problems=errors)


@frozen(kw_only=True)
class PushOptions(PropertyDescription):
    """The records of one data type that one connection accepts.

    Source: "Push options description (response of the options endpoint)".
    """

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

        They have the order of the record, with missing fields of each object at its end. The
        record is checked in the form in which it would be sent, so it may hold Decimals and
        dates, or be an instance of an attrs class, dataclass, pydantic model or Struct.

        Returns:
            Problems. A push fails if one of them ``is_error``; warnings do not stop it.

        Source: "Push options description", rules 1 to 3.
        """
        try:
            plain = decode_json(encode_record(record), exact=True)
        except InvalidRecord as error:
            return [Problem("", ProblemCode.WRONG_TYPE, str(error))]
        found = _Check()
        found.members(self._fields, plain, "")
        return found.problems

    def json_schema(self) -> dict[str, Any]:
        """Return a JSON Schema (Draft 2020-12) that refuses the records with errors.

        Warnings are not part of it; rules in plain words are in the descriptions. A DateTime has
        a ``pattern`` and no ``format``, because ``date-time`` would refuse the plain dates and
        the times without an offset that the service accepts.
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
    # A search among a hundred names can take a few milliseconds. A record may have thousands of
    # lines, and a list of choices, such as accounts, thousands of names.
    _searches_left: int = 20

    def members(self, field: Field, record: dict[str, Any], path: str) -> None:
        prefix = f"{path}." if path else ""
        for name, value in record.items():
            if known := field.members.get(name):
                self.value(known, value, f"{prefix}{name}")
            elif field.members and value is not None:  # generated clients write all, as null
                self._unlisted(field, name, f"{prefix}{name}")
        for name, member in field.members.items():
            if member.required and name not in record:
                self._refuse(f"{prefix}{name}", ProblemCode.REQUIRED, words.missing(member))

    def value(self, field: Field, value: Any, path: str) -> None:
        if field.required and field.is_empty(value):
            self._refuse(path, ProblemCode.REQUIRED, words.missing(field))
        elif value is None:
            return
        elif not field.accepts(value):
            self._refused(field, value, path)
        else:
            self._warnings(field, value, path)
            self._inside(field, value, path)

    def _inside(self, field: Field, value: Any, path: str) -> None:
        if field.members and type(value) is dict:
            self.members(field, value, path)
        elif field.element is not None:
            for index, element in enumerate(value):
                self.value(field.element, element, f"{path}[{index}]")

    def _refused(self, field: Field, value: Any, path: str) -> None:
        if field.choices is not None and field.choices.closed:
            said = words.no_choice(field, field.choices, value, self._may_search)
            self._refuse(path, ProblemCode.NOT_A_CHOICE, said)
        else:
            self._refuse(path, ProblemCode.WRONG_TYPE, words.wrong_type(field, value))

    def _warnings(self, field: Field, value: Any, path: str) -> None:
        if field.choices is not None and value not in field.choices:
            said = words.no_choice(field, field.choices, value, self._may_search)
            self._warn(path, ProblemCode.NOT_A_CHOICE, said)
        for limit in field.limits:
            if observed := limit.observe(value):
                self._warn(path, ProblemCode.RULE, words.broken_rule(field, limit, observed))

    def _unlisted(self, field: Field, name: str, path: str) -> None:
        self._warn(path, ProblemCode.UNLISTED, words.unlisted(field, name, self._may_search))

    def _may_search(self, names: Collection[str]) -> bool:
        cost = 1 + len(names) // 100
        if cost > self._searches_left:
            return False
        self._searches_left -= cost
        return True

    def _refuse(self, path: str, code: ProblemCode, message: str) -> None:
        self.problems.append(Problem(path, code, message))

    def _warn(self, path: str, code: ProblemCode, message: str) -> None:
        self.problems.append(Problem(path, code, message, Severity.WARNING))
