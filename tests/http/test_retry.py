"""The rules of sending again: the table, the pauses, the budget, ``Retry-After`` and quotas."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import RetryPolicy
from integration_sdk._http.hints import UNIX_TIMES_BEGIN, read_quota, read_retry_after
from integration_sdk._http.retry import RetryBudget
from integration_sdk._http.retry import pause as pause_of

NOW = 1_700_000_000.0
JITTERS = st.floats(0, 1, exclude_max=True)


# Policy and pauses


@given(
    st.floats(0, 10), st.floats(0, 10), st.floats(0, 30), st.lists(JITTERS, min_size=1, max_size=20)
)
def test_pauses_are_drawn_below_a_doubling_limit(
    base: float, throttled_base: float, cap: float, draws: list[float]
) -> None:
    """Full jitter: between 0 and the limit, which doubles up to the cap; never a hot loop, nor
    below what the service asks for; and growth has an end.
    """
    policy = RetryPolicy(base=base, throttled_base=throttled_base, cap=cap)
    for number, draw in enumerate(draws):
        throttled = number % 2 == 1
        limit = min(cap, (throttled_base if throttled else base) * 2**number)
        pause = policy.pause(number, draw.__mul__, throttled=throttled)
        assert pause == pytest.approx(max(0.01, limit * draw))
        assert pause_of(10**6, first=base, cap=cap, jitter=draw.__mul__, floor=40.0) == 40.0


# The budget


def test_an_outage_costs_a_tenth_more_at_most() -> None:
    """Beyond a full budget of 100, there is one repetition for ten successes."""
    budget = RetryBudget()
    assert sum(budget.spend() for _ in range(200)) == 100
    for _ in range(70):
        budget.earn()
    assert sum(budget.spend() for _ in range(200)) == 7


# Retry-After


@given(st.floats() | st.text(max_size=40))
def test_any_number_is_a_floor_or_nothing(said: float | str) -> None:
    """Negative is zero; what is no finite number says nothing; 31 years are a Unix time."""
    told = read_retry_after({"Retry-After": str(said)}, NOW)

    if isinstance(said, str):
        assert told is None or told >= 0
    else:
        since = NOW if said >= UNIX_TIMES_BEGIN else 0.0
        assert told is None or told == max(0.0, said - since)


@given(st.integers(-(10**6), 10**8), st.integers(-(10**6), 10**6))
def test_a_date_counts_from_the_services_clock(seconds: int, off: int) -> None:
    """An HTTP date means the seconds until it, however far our clock is *off*."""
    moment, date = (datetime.fromtimestamp(NOW + add, UTC) for add in (seconds, 0))
    named = {"Retry-After": format_datetime(moment, usegmt=True)}
    dated = named | {"Date": format_datetime(date, usegmt=True)}

    assert read_retry_after(named, NOW) == max(0, seconds)
    assert read_retry_after(dated, NOW + off) == max(0, seconds)


# Quotas


def test_the_quota_is_read_in_every_form() -> None:
    """``Reset`` may be Unix time, seconds from now, or ISO 8601."""
    moment = datetime.fromtimestamp(NOW + 60, UTC)
    forms = [str(int(NOW + 60)), "60", "60.0", moment.isoformat()]
    for form in forms:
        said = {"Limit": "1000", "Remaining": "0", "Reset": form}
        quota = read_quota({f"X-Rate-Limit-{name}": text for name, text in said.items()}, NOW)
        assert quota is not None
        assert (quota.limit, quota.remaining, quota.reset) == (1000, 0, moment)
