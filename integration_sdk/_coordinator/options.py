"""What a coordinator is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypedDict

from integration_sdk._coordinator.push import PushEvent

Leave = Literal["drain", "detach", "cancel"]


class CoordinatorOptions(TypedDict, total=False):
    """What `Client.coordinator` takes.

    Attributes:
        journal: File of the journal: pushes are on record before they leave, and a
            later run goes on with them. None, the default: this block only.
        store_payloads: Whether the journal keeps each record until its push is final; default
            True. Without, it keeps hashes and natural keys alone, and what was not sent before
            a crash has to be submitted again.
        exclusive: Whether nobody but this journal pushes to its lanes: then a push whose
            answer was lost can be told by being the only new one. Default False.
        max_open: Pushes without an outcome, at most; default 2000. `Coordinator.submit` and
            `Coordinator.run` wait for a place.
        max_in_flight: Pushes being sent at the same time, at most; default 64.
        leave: What the end of the block does with open pushes: "drain", the default, waits for
            them; "detach" leaves them and keeps their keys in `Coordinator.detached`; "cancel"
            only gives them the outcome PENDING. An exception detaches, and what has not
            left by then is not sent.
        on_event: Called with each `PushEvent`.
        fetch_data: Whether an outcome's operation must have ``data``, at the price of a
            request where the list of pushes does not hold it. Default False.
        patience: Seconds that the list is searched for a push whose answer was lost;
            default 30.
        max_pause: Seconds that sending may pause because the service asks for it; default 600.
            Where it asks for more, as after a spent daily quota, the run ends with its error,
            whose ``retry_at`` says when to come back: what is open is PENDING, what was not
            sent is untouched. None waits for as long as the service asks.
    """

    journal: str | os.PathLike[str] | None
    store_payloads: bool
    exclusive: bool
    max_open: int
    max_in_flight: int
    leave: Leave
    on_event: Callable[[PushEvent], None] | None
    fetch_data: bool
    patience: float
    max_pause: float | None
