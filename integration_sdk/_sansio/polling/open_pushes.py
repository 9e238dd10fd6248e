"""What the polling rules know: open pushes, their lanes and companies, and looks at them."""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil, inf
from typing import Final, Protocol

from attrs import Factory, define

from integration_sdk._sansio.polling.learning import CompletionTimes, Mark
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

FEW: Final = 16
"""Open pushes that are weighed one by one; of more, a sample is."""


class Row(Protocol):
    """What a list says of a push."""

    key: str
    status: str | None


class Follower(Protocol):
    """Whoever is told of the pushes that it sent; ``fetch_data``: with the ``data`` of each."""

    fetch_data: bool

    def changed(self, key: str, operation: PushOperation) -> None:
        """Push *key* was seen, and is not final."""

    def ended(self, key: str, operation: PushOperation) -> None:
        """Push *key* is final."""

    def lost(self, key: str, error: IntegrationError) -> None:
        """Push *key* cannot be followed any further."""


@define(eq=False, weakref_slot=False)
class OpenPush:
    """One open push.

    Attributes:
        order: How many pushes of the company were followed before it.
        born: When it was sent.
        seen: When it was last known to be Pending.
        due: Its appointment; infinite for none.
        slow: Whether it is followed by appointment, not by rounds.
        alone: Whether it has to be read singly: a list lacks it, or its data.
        told: Whether a notification of it came that no look has proved wrong.
        follower: Whoever wants to know; the rules do not look at it.
    """

    key: str
    group: Group
    order: int
    born: float
    seen: float
    due: float = inf
    slow: bool = False
    alone: bool = False
    told: bool = False
    follower: Follower | None = None


@define(eq=False)
class Group:
    """Open pushes of one lane.

    Attributes:
        times: How long its pushes take.
        open: Those followed by rounds, by key, in the order they came.
        slow: Those followed by appointment.
        appointed: The one whose appointment was reckoned last; others may suit as well.
        marks: What `times` was told of the open ones.
    """

    company: Company
    times: CompletionTimes
    open: dict[str, OpenPush] = Factory(dict)
    slow: dict[str, OpenPush] = Factory(dict)
    appointed: OpenPush | None = None
    marks: list[Mark] = Factory(list)


@define(eq=False)
class Company:
    """One company with open pushes.

    Attributes:
        groups: By lane.
        born: Pushes followed so far.
        crowd: Rows of the list per push of ours: others write too.
        flying: Looks under way.
        listing: Whether one of them reads the list.
        round_at: When to weigh it again; infinite for not.
        meeting: The appointment made last; others that fall close to it join it.
        list_after: The list is not to be used before.
        listed_at: When the last look at it began.
        probe_at: When to compare it with a push read singly.
        failures: Looks that failed in a row.
        wanted: Appointments that have come.
        urgent: Pushes to be read singly at once.
        waiting: Whether it is in line for its turn.
        price: What a request is worth this time; varies for jitter.
    """

    id: str
    groups: dict[Hashable, Group] = Factory(dict)
    born: int = 0
    crowd: float = 1.0
    flying: int = 0
    listing: bool = False
    round_at: float = inf
    meeting: float = inf
    list_after: float = -inf
    listed_at: float = -inf
    probe_at: float = -inf
    failures: int = 0
    wanted: dict[str, OpenPush] = Factory(dict)
    urgent: dict[str, OpenPush] = Factory(dict)
    waiting: bool = False
    price: float = 1.0

    @property
    def count(self) -> int:
        """How many pushes are open."""
        return sum(len(group.open) + len(group.slow) for group in self.groups.values())

    def depth(self, push: OpenPush) -> int:
        """Return about how many rows of the list come before and with *push*."""
        return ceil((self.born - push.order) * self.crowd)


@define(eq=False)
class SingleLook:
    """Read this push."""

    company: Company
    push: OpenPush
    started: float


@define(eq=False)
class ListLook:
    """Read this page of the company's pushes, newest first.

    Attributes:
        unseen: Pushes that it should show and has not yet.
        enough: Rows after which what was not shown is missing.
        reach: Pushes of ours that it has to go back over.
        slow: Whether it goes down to the slow ones.
        rows: Read so far.
    """

    company: Company
    page_size: int
    unseen: int
    started: float
    enough: int
    reach: int
    slow: bool = False
    page: int = 1
    rows: int = 0


Look = SingleLook | ListLook


def sample(pushes: dict[str, OpenPush]) -> list[tuple[OpenPush, int]]:
    """Return some pushes, newest first, and how many each stands for.

    The older, the more: what becomes of a push changes with the logarithm of its age.
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
