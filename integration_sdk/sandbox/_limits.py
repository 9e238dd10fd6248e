"""The account's limits: those of the free plan, and the daily quota of requests.

Source: "Limits"; "Account limit errors (402)". Assumed: the published daily quota,
1,000 x (1 + connected companies), reset at 00:00 UTC.
"""

from __future__ import annotations

from typing import Any

from attrs import define

from integration_sdk.sandbox._call import Problem, Refused
from integration_sdk.sandbox._clock import iso

FREE_COMPANIES = 50
FREE_SYNC_HOURS = 24
FREE_DAYS = 365
DAY = 86_400


@define
class Plan:
    """The limits of the account's plan.

    Args:
        free: The free plan: 50 companies, a sync a day, 365 days.
        opened: Service time at which the account was opened.
    """

    free: bool
    opened: float

    def check_age(self, now: float) -> None:
        """402 to every request of a free account older than 365 days."""
        if self.free and now - self.opened > FREE_DAYS * DAY:
            raise account_expired()

    def check_companies(self, count: int) -> None:
        """402 when there are *count* companies and one more is wanted."""
        if self.free and count >= FREE_COMPANIES:
            message = f"Company limit exceeded: the free plan holds {FREE_COMPANIES} companies"
            problem = Problem("Company", message, "CreateCompany")
            raise Refused(402, "Company validation exception: company limit exceeded", [problem])

    def check_schedule(self, settings: Any) -> None:
        """402 when *settings* hold a ``syncSchedule`` below 24 on the free plan."""
        if self.free and any(hours < FREE_SYNC_HOURS for hours in schedules(settings)):
            message = f"Schedule not allowed: at least {FREE_SYNC_HOURS} hours on the free plan"
            problem = Problem("SyncSettings", message, "SyncSettings")
            error = "Sync settings validation exception: sync schedule not allowed"
            raise Refused(402, error, [problem])


def account_expired() -> Refused:
    """Return the refusal of every request once a free account has expired."""
    message = f"Account expired: the free account is older than {FREE_DAYS} days"
    return Refused(402, "Payment Required", [Problem(None, message)])


def schedules(settings: Any) -> list[float]:
    """Return every ``syncSchedule`` in *settings*: at the top or in its ``settings`` list."""
    entries = [settings, *settings.get("settings", [])]
    return [entry["syncSchedule"] for entry in entries if "syncSchedule" in entry]


@define
class Quota:
    """The daily quota of requests.

    Args:
        daily: Requests a day; None does not count them.
        holds: Whether more are refused.
    """

    daily: int | None
    holds: bool = True
    day: int = -1
    used: int = 0

    def count(self, now: float) -> dict[str, str]:
        """Count one request and return the rate-limit headers; 429 if the quota is used up."""
        if self.daily is None:
            return {}
        if self.day != now // DAY:
            self.day, self.used = int(now // DAY), 0
        self.used += 1
        reset = (self.day + 1) * DAY
        headers = rate_headers(self.daily, self.daily - self.used, reset)
        if self.holds and self.used > self.daily:
            headers["Retry-After"] = str(int(reset - now) + 1)
            raise Refused(429, "Too many requests: the daily quota is spent", headers=headers)
        return headers


def rate_headers(limit: int, remaining: float, reset: float) -> dict[str, str]:
    """``X-Rate-Limit-*``. Assumed: the reset is a moment in UTC."""
    return {
        "X-Rate-Limit-Limit": str(limit),
        "X-Rate-Limit-Remaining": str(max(0, int(remaining))),
        "X-Rate-Limit-Reset": iso(reset),
    }
