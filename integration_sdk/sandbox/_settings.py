"""How a sandbox was asked to be, checked.

What each setting means is said once, at `Sandbox`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from attrs import Attribute, field, frozen, validators

CONNECTION_NAMES: Mapping[str, str] = {
    "document": "dataConnectionId",
    "published": "dataConnectionKey",
}


def _count(_settings: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        name = attribute.name
        raise ValueError(f"{name} must be a whole number of at least 0, not {value!r}")


def _port(_settings: object, _attribute: Attribute[Any], value: int) -> None:
    if value > 65_535:
        raise ValueError(f"port must be at most 65535, not {value}")


def _one_of(*words: str | None) -> Any:
    def check(_settings: object, attribute: Attribute[Any], value: object) -> None:
        if value not in words:
            listed = " or ".join(map(repr, words))
            raise ValueError(f"{attribute.name} must be {listed}, not {value!r}")

    return check


def _span(_settings: object, attribute: Attribute[Any], value: tuple[float, float]) -> None:
    least, most = value
    if not 0 <= least <= most:
        raise ValueError(f"{attribute.name} must be (least, most), not {value!r}")


@frozen(kw_only=True)
class Settings:
    """A sandbox's settings; ValueError names the one that makes no sense."""

    companies: int = field(validator=_count)
    invoices: int = field(validator=_count)
    seed: int
    dialect: str = field(validator=_one_of("document", "published"))
    spelling: str | None = field(validator=_one_of(*CONNECTION_NAMES.values(), None))
    api_key: str = field(repr=False)
    free_plan: bool
    account_age_days: float
    legacy_removed: bool | date
    push_seconds: tuple[float, float] = field(validator=_span)
    daily_quota: int | None = field(validator=validators.optional(_count))
    remember: int = field(validator=_count)
    host: str
    port: int = field(validator=[_count, _port])

    @property
    def published(self) -> bool:
        """Whether this is the published dialect."""
        return self.dialect == "published"

    @property
    def connection_name(self) -> str:
        """What an operation calls its connection."""
        return self.spelling or CONNECTION_NAMES[self.dialect]
