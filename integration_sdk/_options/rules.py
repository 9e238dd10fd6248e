"""Reads rules that push options state in free text, such as "Max length of 21 characters".

Only unconditional sentences with a single statement are understood. A broken rule is a warning,
since the document calls these rules informative. All other rules are shown (in the schema and
the form) but not checked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from attrs import frozen

from integration_sdk.models import OptionRule, PropertyDescription

Observe = Callable[[Any], str | None]
"""Returns what is wrong with a value, such as "it has 25 characters"; None if nothing is."""


@frozen
class Limit:
    """A rule that can be checked: its text, and a function that checks a value."""

    text: str
    observe: Observe


# Whose rule is it


def place_rules(root: PropertyDescription) -> Mapping[str, list[str]]:
    """Return the rules by the casefolded, dotted path of the property that they apply to.

    Assumed: a rule applies to the property that holds it, unless its ``field`` names a property
    below that one, or another by its full path. Published descriptions write ``field`` in
    PascalCase, as a full path (``LineItems.Quantity``) or its last names (``AccountRef.Id``), or
    leave it out.
    """
    held = dict(_walk(root, ""))
    placed = defaultdict[str, list[str]](list)
    for path, description in held.items():
        for rule in (*description.validation.warnings, *description.validation.information):
            if rule.details:
                placed[_subject(rule, path, held)].append(rule.details.strip())
    return placed


def join(path: str, name: str) -> str:
    """Return the path of the property *name* of *path*, which is empty for the record itself."""
    return f"{path}.{name}" if path else name


def _walk(description: PropertyDescription, path: str) -> Iterator[tuple[str, PropertyDescription]]:
    yield path, description
    for name, member in description.properties.items():
        yield from _walk(member, join(path, name.casefold()))


def _subject(rule: OptionRule, holder: str, known: Mapping[str, PropertyDescription]) -> str:
    named = (rule.field or "").casefold()
    if not named or f".{holder}".endswith(f".{named}"):
        return holder
    return next((path for path in (join(holder, named), named) if path in known), holder)


# What it says


def read_limit(text: str) -> Limit | None:
    """Return the rule in *text*; None if it is not understood."""
    plain = _IF_GIVEN.sub("", " ".join(text.casefold().split())).rstrip(". ")
    for pattern, make in _FAMILIES:
        if said := pattern.fullmatch(plain):
            return Limit(text, make(*map(_number, said.groups())))
    return None


def _number(said: str) -> int:
    return _WORDS.index(said) if said in _WORDS else int(said)


def _length(least: int, most: int) -> Observe:
    def observe(value: Any) -> str | None:
        fits = not isinstance(value, str) or least <= len(value) <= most
        return None if fits else f"it has {len(value)} characters"

    return observe


def _decimals(most: int) -> Observe:
    def observe(value: Any) -> str | None:
        places = _places(value) if isinstance(value, Decimal) else 0
        return f"it has {places} decimal places" if places > most else None

    return observe


def _places(value: Decimal) -> int:
    """Return the number of decimal places without trailing zeros: 1.10 has one."""
    _, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    return max(0, -int(exponent) - len(written) + len(significant)) if significant else 0


def _above(bound: int, *, inclusive: bool) -> Observe:
    def observe(value: Any) -> str | None:
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        fits = not is_number or value > bound or (inclusive and value == bound)
        return None if fits else f"it is {value}"

    return observe


def _letters(count: int) -> Observe:
    def observe(value: Any) -> str | None:
        fits = not isinstance(value, str) or (len(value) == count and value.isalpha())
        return None if fits else f"it is {value!r:.40}"

    return observe


def _guid() -> Observe:
    def observe(value: Any) -> str | None:
        fits = not isinstance(value, str) or _GUID.fullmatch(value)
        return None if fits else f"it is {value!r:.40}"

    return observe


def _ignored() -> Observe:
    return lambda _: "leave it out"


_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WORDS: Final = (
    *("zero", "one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
)
_IF_GIVEN: Final = re.compile(r"^if (?:supplied|included|provided|set|specified),? ")
_N: Final = rf"([0-9]{{1,9}}|{'|'.join(_WORDS)})"
_CHARACTERS: Final = "chara(?:c)?ters"  # "charaters" is how one platform spells it
# A clause before "and" says something else, unless it is the condition of what follows.
_OTHER_CLAUSES: Final = r"(?:(?!.*\b(?:if|when|unless|except|for|only)\b)[a-z ,]+ (?:and|can) )?"

_FAMILIES: Final[tuple[tuple[re.Pattern[str], Callable[..., Observe]], ...]] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (
            rf"{_OTHER_CLAUSES}(?:(?:must )?have a )?max(?:imum)?(?: length)?(?: of)? {_N} "
            "characters",
            lambda most: _length(0, most),
        ),
        (
            rf"(?:must|should) (?:not exceed|not be (?:greater|longer) than"
            rf"|be no (?:greater|longer) than) {_N} {_CHARACTERS}(?: long)?",
            lambda most: _length(0, most),
        ),
        (rf"must be less than {_N} characters", lambda bound: _length(0, bound - 1)),
        (rf"must (?:have a length|be) between {_N} and {_N} characters", _length),
        (
            rf"must (?:have a length of|be exactly) {_N} characters(?: in length| long)?",
            lambda exactly: _length(exactly, exactly),
        ),
        (
            rf"(?:precision )?(?:must|should|can)(?: be| have)?(?: rounded)?(?: a| at)?"
            rf"(?: max(?:imum)?| most)?(?: of| to)? {_N} decimal places?",
            _decimals,
        ),
        (rf"must be greater than {_N}", lambda bound: _above(bound, inclusive=False)),
        ("must be positive", lambda: _above(0, inclusive=False)),
        (
            rf"must be greater than or equal to {_N}",
            lambda bound: _above(bound, inclusive=True),
        ),
        (
            rf"(?:value )?(?:must|should) be {_N} or greater",
            lambda bound: _above(bound, inclusive=True),
        ),
        (rf"must be a {_N}[ -]letter (?:[a-z]+ )*code(?: that matches .*)?", _letters),
        ("must be a valid guid", _guid),
        ("is not supported and will be ignored", _ignored),
    )
)
