"""The settings of a sandbox, and what they and the arguments of faults may be."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from attrs import field, frozen
from msgspec import Meta

Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Duration = Annotated[float, Meta(ge=0)]
HeaderText = Annotated[str, Meta(pattern=r"^[^\r\n\0]*\Z")]
Span = tuple[float, float]
DialectName = Literal["document", "published"]
Spelling = Literal["dataConnectionId", "dataConnectionKey"]
FREE_COMPANIES = 50
REMOVAL = date(2023, 4, 10)
"""The day after which the legacy bank endpoints are gone ("Versioning", rule 2)."""


def allowed(wanted: Any, name: str, value: Any) -> Any:
    """Return *value* in the type *wanted*; a list becomes a tuple, a whole number a fraction.

    Raises:
        ValueError: It is no such value; the error says what *name* can be.
    """
    if callable(value) or isinstance(value, re.Pattern):
        return value
    try:
        return msgspec.convert(value, wanted, builtin_types=(date, datetime))
    except msgspec.ValidationError as error:
        parts = [part for part in (wanted, *get_args(wanted)) if get_origin(part) is Literal]
        choices = ", ".join(str(choice) for part in parts for choice in get_args(part))
        why = f"Expected one of {choices}" if choices else str(error)
        if Span in {wanted, *get_args(wanted)}:
            why = why.replace("array", "(least, most)")
        raise ValueError(f"{name} cannot be {value!r}: {why}") from None


def span(name: str, least: float, most: float) -> Span:
    """Return *least* and *most* seconds; ValueError if they are negative or fall."""
    if not 0 <= least <= most:
        raise ValueError(f"{name} cannot be {(least, most)}: Expected 0 <= least <= most")
    return least, most


def new_uuid(chance: random.Random) -> str:
    """A UUID by *chance*, so that a seed fixes it."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _day(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo is None else value.astimezone(UTC)).date()


@frozen(kw_only=True)
class Settings:
    """A sandbox's settings, which `Sandbox` documents; ValueError names one that cannot be."""

    companies: Whole
    invoices: Whole
    seed: int
    dialect: DialectName
    spelling: Spelling | None
    _api_key: str | None = field(repr=False)
    free_plan: bool
    account_age_days: Duration
    legacy_removed: bool | date = field(converter=_day)
    push_seconds: Span
    _daily_quota: Whole | bool | None
    starts: datetime | None
    remember: Whole
    host: str
    port: Annotated[int, Meta(ge=0, le=65_535)]

    def __attrs_post_init__(self) -> None:
        for name, wanted in get_type_hints(Settings, include_extras=True).items():
            allowed(wanted, name.removeprefix("_"), getattr(self, name))
        span("push_seconds", *self.push_seconds)
        if self._api_key == "":
            raise ValueError("api_key cannot be empty: without one, one is made from the seed")
        if self.free_plan and self.companies > FREE_COMPANIES:
            raise ValueError(
                f"companies cannot be {self.companies}: the free plan holds {FREE_COMPANIES}"
            )
        if self.account_age_days and not self.free_plan:
            raise ValueError("account_age_days needs free_plan: no other account expires")

    @property
    def published(self) -> bool:
        """Whether this is the published dialect."""
        return self.dialect == "published"

    @property
    def api_key(self) -> str:
        """The key asked for, or one made from the seed."""
        return self._api_key or f"sandbox-{new_uuid(random.Random(f'{self.seed}/key'))}"

    @property
    def daily_quota(self) -> int | None:
        """Requests a day; None where they are not counted."""
        asked = self.published if self._daily_quota is None else self._daily_quota
        if isinstance(asked, bool):
            return 1_000 * (1 + self.companies) if asked else None
        return asked

    @property
    def quota_holds(self) -> bool:
        """Whether requests beyond the quota are refused; only if a quota was asked for."""
        return self._daily_quota is not None

    @property
    def connection_name(self) -> Spelling:
        """What an operation calls its connection."""
        return self.spelling or ("dataConnectionKey" if self.published else "dataConnectionId")
