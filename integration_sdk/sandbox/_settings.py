"""The settings of a sandbox, validated; `Sandbox` documents them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from attrs import Attribute, field, frozen

from integration_sdk.sandbox._records import Ids

CONNECTION_NAMES: Mapping[str, str] = {
    "document": "dataConnectionId",
    "published": "dataConnectionKey",
}


def _count(_settings: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        name = attribute.alias
        raise ValueError(f"{name} must be a whole number of at least 0, not {value!r}")


def _quota(settings: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, bool):
        _count(settings, attribute, value)


def _port(_settings: object, _attribute: Attribute[Any], value: int) -> None:
    if value > 65_535:
        raise ValueError(f"port must be at most 65535, not {value}")


def _one_of(*words: str | None) -> Any:
    def check(_settings: object, attribute: Attribute[Any], value: object) -> None:
        if value not in words:
            listed = " or ".join(map(repr, words))
            raise ValueError(f"{attribute.name} must be {listed}, not {value!r}")

    return check


def _span(_settings: object, attribute: Attribute[Any], value: object) -> None:
    match value:
        case (int() | float() as least, int() | float() as most) if 0 <= least <= most:
            return
    example = f"(least, most) seconds, such as (0.05, 0.3), not {value!r}"
    raise ValueError(f"{attribute.name} must be {example}")


def _whole(_settings: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{attribute.name} must be a whole number, not {value!r}")


def _day(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo is None else value.astimezone(UTC)).date()


def _switch_or_day(_settings: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, (bool, date)):
        raise TypeError(f"{attribute.name} must be True, False or a date, not {value!r}")


@frozen(kw_only=True)
class Settings:
    """A sandbox's settings; ValueError or TypeError names the one that makes no sense."""

    companies: int = field(validator=_count)
    invoices: int = field(validator=_count)
    seed: int = field(validator=_whole)
    dialect: str = field(validator=_one_of("document", "published"))
    spelling: str | None = field(validator=_one_of(*CONNECTION_NAMES.values(), None))
    _api_key: str | None = field(repr=False)
    free_plan: bool
    account_age_days: float
    legacy_removed: bool | date = field(converter=_day, validator=_switch_or_day)
    push_seconds: tuple[float, float] = field(validator=_span)
    _daily_quota: int | bool | None = field(validator=_quota)
    remember: int = field(validator=_count)
    host: str
    port: int = field(validator=[_count, _port])

    @property
    def published(self) -> bool:
        """Whether this is the published dialect."""
        return self.dialect == "published"

    @property
    def api_key(self) -> str:
        """The key asked for, or one made from the seed."""
        return self._api_key or f"sandbox-{Ids(self.seed, 'key')[self.seed]}"

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
    def connection_name(self) -> str:
        """What an operation calls its connection."""
        return self.spelling or CONNECTION_NAMES[self.dialect]
