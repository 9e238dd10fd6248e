"""The data of the polling rules: open pushes, their companies, and their polls.

An open push is in one of two places, where it waits for a time::

    PolledCompany.batched      the next round of its company, `PolledCompany.due`
    PolledCompany.individual   its own `OpenPush.due`; it never goes back to rounds

Batched pushes have times of their own too while their company's list cannot be used. A push that
is to be polled when its company has its turn is in one of these as well::

    PolledCompany.wanted       its time has come, it may well have ended, or a caller's wait for
                               it soon ends: polled singly or by list, whichever is cheaper
    PolledCompany.urgent       it was ``notified``, is to be ``read_singly``, or checks the list:
                               polled singly

It leaves either when its single poll begins, and ``wanted`` also when a list has shown it or a
poll of its company has failed. While it is ``being_read`` it is not polled singly again, but a
notification makes it urgent for afterwards.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final, NamedTuple, Protocol

from attrs import Factory, define, field

from integration_sdk._push.completion_times import CompletionTimes
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

FEW: Final = 16
"""Up to this many open pushes are looked at one by one; of more, only a sample."""


class Row(Protocol):
    """A push as a list shows it."""

    key: str
    status: str | None


class Follower(Protocol):
    """Is told what becomes of its pushes; ``fetch_data``: whether it wants their ``data``."""

    fetch_data: bool

    def changed(self, key: str, operation: PushOperation) -> None:
        """Push *key* was seen and is not final."""

    def ended(self, key: str, operation: PushOperation) -> None:
        """Push *key* is final."""

    def lost(self, key: str, error: IntegrationError) -> None:
        """Push *key* cannot be followed any further."""


class Trouble(NamedTuple):
    """Why a poll that began *at* this time failed."""

    at: float
    error: IntegrationError


@define(eq=False, weakref_slot=False)
class OpenPush:
    """One open push.

    Attributes:
        order: How many pushes of the company were followed before it.
        born: When it was sent.
        seen: When it was last known to be Pending.
        polled: When its last single poll began or returned; minus infinity for never.
        hurry: Whether a notification is to bring its next single poll forward.
        hurried: When one last did so.
        times: How long pushes like it take.
        due: When it is to be polled by itself; infinite if it is not.
        read_singly: Whether it has to be read singly, because lists lack it or its data.
        notified: Whether a notification of it came that no poll has disproved.
        being_read: Whether a single poll of it is in progress.
        exists: Whether the service has answered with it before.
        trouble: Why its last single poll failed; None if it did not.
        followers: Whom to tell. The rules use none of these three.
    """

    key: str
    company: PolledCompany = field(repr=False)
    times: CompletionTimes = field(repr=False)
    order: int
    born: float
    seen: float
    polled: float = -inf
    hurry: bool = False
    hurried: float = -inf
    due: float = inf
    read_singly: bool = False
    notified: bool = False
    being_read: bool = False
    exists: bool = False
    trouble: Trouble | None = None
    followers: tuple[Follower, ...] = ()

    def __str__(self) -> str:
        return f"push {self.key}"

    @property
    def is_individual(self) -> bool:
        """Whether it is followed by itself, not in its company's rounds."""
        return self.key in self.company.individual

    @property
    def why_unseen(self) -> IntegrationError | None:
        """The error of the last poll of it or of its company's list; None if that saw it."""
        for trouble in (self.trouble, self.company.trouble):
            if trouble is not None and trouble.at > self.seen:
                return trouble.error
        return None

    def unnoticed(self, at: float) -> tuple[float, float]:
        """Return the chance that it has ended unnoticed by then, and its waiter's delay."""
        return self.times.unnoticed(self.seen - self.born, at - self.born)


@define(eq=False)
class PolledCompany:
    """One company with open pushes.

    Attributes:
        batched: Open pushes followed by rounds, by key, oldest first.
        individual: Open pushes followed by themselves, by key.
        followed: Number of pushes followed so far.
        rows_per_push: Rows of the list per push of ours, since others write too.
        in_flight: Number of polls in progress.
        listing: Whether one of them reads the list.
        paid_until: When its share of requests is whole again; minus infinity if it had none.
        due: The time of its next round; infinite for never.
        shared_time: The time that an individual push got last; others close to it get it too.
        list_after: When the list may be used again.
        probe_at: When to compare the list with a push read singly.
        failures: Polls that failed in a row.
        trouble: Why the last poll of its list failed; None if it did not.
        wanted: Pushes to be polled in its next turn.
        urgent: Pushes to be polled singly in its next turn, whatever else is due.
        price: What a request is worth this time; varies for jitter.
    """

    id: str
    batched: dict[str, OpenPush] = Factory(dict)
    individual: dict[str, OpenPush] = Factory(dict)
    followed: int = 0
    rows_per_push: float = 1.0
    in_flight: int = 0
    listing: bool = False
    paid_until: float = -inf
    due: float = inf
    shared_time: float = inf
    list_after: float = -inf
    probe_at: float = -inf
    failures: int = 0
    trouble: Trouble | None = None
    wanted: dict[str, OpenPush] = Factory(dict)
    urgent: dict[str, OpenPush] = Factory(dict)
    price: float = 1.0

    def __str__(self) -> str:
        return f"the pushes of company {self.id}"

    @property
    def count(self) -> int:
        """How many pushes are open."""
        return len(self.batched) + len(self.individual)

    def depth(self, push: OpenPush) -> int:
        """Return roughly which row of the list, from 1, holds *push*."""
        return ceil((self.followed - push.order) * self.rows_per_push)


@define(eq=False)
class SinglePoll:
    """Read this push."""

    company: PolledCompany
    push: OpenPush
    started: float


@define(eq=False)
class ListPoll:
    """Read this page of the company's pushes, newest first.

    Attributes:
        unseen: Pushes that it should show and has not shown yet.
        enough: Rows after which pushes that were not shown count as missing.
        reach: Number of our pushes that it has to go back over.
        covers_all: Whether it goes back to those followed individually too.
        rows: Rows read so far.
    """

    company: PolledCompany
    page_size: int
    unseen: int
    started: float
    enough: int
    reach: int
    covers_all: bool = False
    page: int = 1
    rows: int = 0


Poll = SinglePoll | ListPoll


def sample(pushes: dict[str, OpenPush]) -> list[tuple[OpenPush, int]]:
    """Return some pushes, newest first, and how many pushes each stands for.

    Older ones stand for more, since chances change with the logarithm of the age.
    """
    everyone = list(pushes.values())
    if len(everyone) <= FEW:
        return [(push, 1) for push in reversed(everyone)]
    chosen: list[tuple[OpenPush, int]] = []
    left = len(everyone)
    while left:
        share = min(left, max(1, (len(everyone) - left) // 2))
        chosen.append((everyone[left - 1 - share // 2], share))
        left -= share
    return chosen
