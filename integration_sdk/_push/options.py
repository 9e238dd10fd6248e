"""The options of a coordinator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypedDict

from integration_sdk._push.push import PushEvent
from integration_sdk._store.store import Store

Leave = Literal["drain", "detach", "cancel"]
InDoubt = Literal["ask", "resend"]


class CoordinatorOptions(TypedDict, total=False):
    """What `Client.coordinator` takes.

    Attributes:
        journal: Path of a file, ``postgresql://`` URL of a database, or a `Store`, that records
            each push before it is sent, so that a later run goes on with what this one leaves. It
            belongs to the client's base URL and dialect; a client of others is refused. In a
            database that run may be on another host; one at a time carries the pushes, and a
            process that dies is succeeded after 15 seconds. None, the default, keeps no record.
        store_payloads: Whether the journal keeps each record until its push is final or refused;
            default True. Otherwise it keeps hashes and natural keys alone, and what was not sent
            before a crash has to be submitted again.
        exclusive: Set it if nobody else pushes to the same connections and data types: a push
            whose answer was lost can then be recognised as the only new one. Default False.
        max_open: How many pushes may be without an outcome; default 2000. `Coordinator.submit`
            and `Coordinator.run` wait while there are as many.
        max_in_flight: How many pushes are sent at the same time; default 64. Those of a company
            that the service refuses for now wait beyond them.
        leave: What the end of the block does with open pushes: "drain", the default, waits for
            them; "detach" leaves them and keeps their keys in `Coordinator.detached`; "cancel"
            only gives them the outcome PENDING. A block that ends with an exception detaches,
            and sends nothing more.
        on_event: Called with each `PushEvent`.
        fetch_data: Whether the operation of every outcome has ``data``, for one more request
            where the list of pushes leaves it out. Default False. A push that has ended before is
            answered from the journal, which has no data.
        patience: Seconds to search the list for a push whose answer was lost; default 30.
        in_doubt: "ask", the default, leaves every push that the lists cannot settle to you, with
            the outcome IN_DOUBT. "resend" sends again, on record, what no list has shown for as
            long as *patience*: a create with a ``natural_key``, in whose connection and data type
            no push is unexplained; also where an earlier run left it. The outcome is that of the
            new push. The risk is yours: a request that reaches the service later than
            *patience*, or a push that its list shows later, is then there twice. Five requests
            for one record are the most; after them, and for any other push, it stays IN_DOUBT.
        max_pause: Seconds that the service may ask to wait before more is sent; default 600.
            If it asks for more, as when a daily quota is used up, the run ends with the
            service's error, whose ``retry_at`` says when to come back: open pushes are PENDING,
            what was not sent is untouched. None waits for as long as the service asks.
    """

    journal: str | os.PathLike[str] | Store | None
    store_payloads: bool
    exclusive: bool
    max_open: int
    max_in_flight: int
    leave: Leave
    on_event: Callable[[PushEvent], None] | None
    fetch_data: bool
    patience: float
    in_doubt: InDoubt
    max_pause: float | None
