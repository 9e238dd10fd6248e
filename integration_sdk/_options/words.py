"""The sentences that describe problems in a record and say what would be right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from integration_sdk._options.description import Choices, Field
from integration_sdk._options.rules import Limit
from integration_sdk._records.codec import encode_value

MaySearch = Callable[[Collection[str]], bool]
"""Returns whether there is time to search these names for the one that was meant."""


def missing(field: Field) -> str:
    """Return the sentence for a required property that is not populated."""
    right = field.kind.words if field.choices is None else _any_of(field.choices)
    return f"{field.label} is required: give {right}."


def wrong_type(field: Field, value: Any) -> str:
    """Return the sentence for a value of the wrong type."""
    return f"{field.label} must be {field.kind.words}, not {_shown(value)}."


def no_choice(field: Field, choices: Choices, value: Any, may_search: MaySearch) -> str:
    """Return the sentence for a value that is not among the choices."""
    must = "must" if choices.closed else "should"
    end = _end(str(value), choices.spellings, may_search)
    return f"{field.label} {must} be {_any_of(choices)}, not {_shown(value)}{end}"


def unlisted(field: Field, name: str, may_search: MaySearch) -> str:
    """Return the sentence for a property that the options do not list."""
    known = {member.casefold(): member for member in field.members}
    end = _end(name, known, may_search)
    return f"{_shown(name)} is not listed for {field.label} and may be dropped{end}"


def broken_rule(field: Field, limit: Limit, observed: str) -> str:
    """Return the sentence for a rule in plain words that a value breaks."""
    return f"{field.label}: {limit.text.rstrip('. ')} ({observed})."


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


def _end(wrong: str, right: Mapping[str, Any], may_search: MaySearch) -> str:
    """Return the end of a sentence, with the value probably meant; *right* has casefolded keys."""
    name = wrong.casefold()
    near = [name] if name in right else []
    if not near and len(wrong) <= 100 and may_search(right):
        near = get_close_matches(name, right, n=1)
    return f"; did you mean {_shown(right[near[0]])}?" if near else "."
