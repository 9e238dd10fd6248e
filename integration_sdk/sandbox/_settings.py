"""The settings of a sandbox, validated; `Sandbox` documents them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Literal, get_type_hints

from attrs import field, frozen
from msgspec import Meta

from integration_sdk.sandbox._allowed import Duration, Span, Whole, allowed, span
from integration_sdk.sandbox._books.records import Ids
from integration_sdk.sandbox._limits import FREE_COMPANIES

CONNECTION_NAMES: Mapping[str, Literal["dataConnectionId", "dataConnectionKey"]] = {
    "document": "dataConnectionId",
    "published": "dataConnectionKey",
}


def _day(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo is None else value.astimezone(UTC)).date()


@frozen(kw_only=True)
class Settings:
    """A sandbox's settings; ValueError names the one that makes no sense."""

    companies: Whole
    invoices: Whole
    seed: int
    dialect: Literal["document", "published"]
    spelling: Literal["dataConnectionId", "dataConnectionKey"] | None
    _api_key: str | None = field(repr=False)
    free_plan: bool
    account_age_days: Duration
    legacy_removed: bool | date = field(converter=_day)
    push_seconds: Span
    _daily_quota: Whole | bool | None
    remember: Whole
    host: str
    port: Annotated[int, Meta(ge=0, le=65_535)]

    def __attrs_post_init__(self) -> None:
        types = get_type_hints(Settings, include_extras=True)
        for name, wanted in types.items():
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
