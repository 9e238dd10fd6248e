"""The data of the polling rules: open pushes, their groups and companies, and their polls.

An open push is in one of two places, where it waits for a time::

    Group.by_round          the next round of its company, `PolledCompany.round_at`
    Group.by_appointment    its own appointment, `OpenPush.due`; it never goes back to rounds

Those in ``by_round`` have appointments too while their company's list cannot be used. A push that
is to be polled when its company has its turn is in one of these as well::

    PolledCompany.wanted    its appointment has come, it may well have ended, or a caller's wait
                            for it soon ends: polled singly or by list, whichever is cheaper
    PolledCompany.urgent    it was ``notified``, is to be ``read_singly``, or checks the list:
                            polled singly

It leaves either when its single poll begins, and ``wanted`` also when a list has shown it or a
poll of its company has failed. While it is ``being_read`` it is not polled singly again, but a
notification makes it urgent for afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil, inf
from typing import Final, NamedTuple, Protocol

from attrs import Factory, define, field

from integration_sdk._sansio.polling.learning import CompletionTimes, Mark
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

FEW: Final = 16
"""Up to this many open pushes are weighed one by one; of more, only a sample."""


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
        due: The time of its appointment; infinite if it has none.
        read_singly: Whether it has to be read singly, because lists lack it or its data.
        notified: Whether a notification of it came that no poll has disproved.
        being_read: Whether a single poll of it is in progress.
        exists: Whether the service has answered with it before.
        trouble: Why its last single poll failed; None if it did not.
        followers: Whom to tell. The rules use none of these three.
    """

    key: str
    group: Group = field(repr=False)
    order: int
    born: float
    seen: float
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
    def by_appointment(self) -> bool:
        """Whether it is followed by appointments, not by rounds."""
        return self.key in self.group.by_appointment

    @property
    def why_unseen(self) -> IntegrationError | None:
        """The error of the last poll of it or of its company's list; None if that saw it."""
        for trouble in (self.trouble, self.group.company.trouble):
            if trouble is not None and trouble.at > self.seen:
                return trouble.error
        return None


@define(eq=False)
class Group:
    """Open pushes that one company has in one cohort.

    Attributes:
        times: How long its pushes take.
        by_round: Those followed by rounds, by key, oldest first.
        by_appointment: Those followed by appointments, by key.
        last_appointed: The push whose appointment was computed last; similar pushes share it.
        marks: What `times` was told about those followed by rounds.
    """

    company: PolledCompany = field(repr=False)
    times: CompletionTimes = field(repr=False)
    by_round: dict[str, OpenPush] = Factory(dict)
    by_appointment: dict[str, OpenPush] = Factory(dict)
    last_appointed: OpenPush | None = None
    marks: list[Mark] = Factory(list)


@define(eq=False)
class PolledCompany:
    """One company with open pushes.

    Attributes:
        groups: Its open pushes, by cohort.
        followed: Number of pushes followed so far.
        rows_per_push: Rows of the list per push of ours, since others write too.
        in_flight: Number of polls in progress.
        listing: Whether one of them reads the list.
        round_at: When to weigh it again; infinite for never.
        meeting: The time of the last appointment made; others close to it are moved to it.
        list_after: When the list may be used again.
        probe_at: When to compare the list with a push read singly.
        failures: Polls that failed in a row.
        trouble: Why the last poll of its list failed; None if it did not.
        wanted: Pushes to be polled in its next turn.
        urgent: Pushes to be polled singly in its next turn, whatever else is due.
        price: What a request is worth this time; varies for jitter.
    """

    id: str
    groups: dict[Hashable, Group] = Factory(dict)
    followed: int = 0
    rows_per_push: float = 1.0
    in_flight: int = 0
    listing: bool = False
    round_at: float = inf
    meeting: float = inf
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
        groups = self.groups.values()
        return sum(len(group.by_round) + len(group.by_appointment) for group in groups)

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
        covers_all: Whether it goes back to those followed by appointments too.
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

    Older ones stand for more, since risks change with the logarithm of the age.
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
