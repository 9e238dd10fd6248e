"""Every push, from its record to its end: Pending, then Success, Failed or TimedOut.

When and how a push ends is decided when it is accepted. Its state then depends only on the
clock, so ten thousand open pushes cost nothing until they end.

Source: "States and transitions".
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import copy
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

from integration_sdk.sandbox._companies import new_uuid
from integration_sdk.sandbox._pushes.operation import Operation

if TYPE_CHECKING:
    from integration_sdk.sandbox._notices.notifier import Notifier


class Ledger:
    """Every push that the service has recorded, in the order of the requests.

    Args:
        chance: Determines keys and identifiers.
        take_effect: Called once with each push that ends without known problems; sets its
            ``data``, or ``problems`` found only then.

    Attributes:
        watcher: Is told what is recorded, when pushes will end, and what has ended.
    """

    def __init__(self, chance: random.Random, take_effect: Callable[[Operation], None]) -> None:
        self._chance = chance
        self._take_effect = take_effect
        self._ending: list[tuple[float, int, Operation]] = []
        self._turns = count()
        self._of_company: dict[str, list[Operation]] = {}
        self._by_key: dict[str, Operation] = {}
        self.watcher: Notifier | None = None

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def latest(self, count: int) -> list[Operation]:
        """The last *count* pushes, the newest first."""
        return list(islice(reversed(self._by_key.values()), count))

    def new_key(self) -> str:
        """A ``pushOperationKey`` not used before."""
        return new_uuid(self._chance)

    def record(self, operation: Operation) -> None:
        """Add *operation*."""
        self._by_key[operation.key] = operation
        self._of_company.setdefault(operation.company, []).append(operation)
        if self.watcher is not None:
            self.watcher.recorded(operation)
        self._note_end(operation)

    def hurry(self, operation: Operation, ends: float) -> None:
        """Let an open *operation* end at *ends*, for example since its platform is back."""
        if operation.status == "Pending":
            operation.ends = ends
            self._note_end(operation)

    def settle(self, now: float) -> None:
        """End all pushes whose time has come, in the order of their ends."""
        while self._ending and self._ending[0][0] <= now:
            at, _, operation = heapq.heappop(self._ending)
            if operation.status == "Pending" and at == _end(operation):
                self._finish(operation, at)
            elif operation.late and at == operation.ends:
                self._take_effect(copy(operation))  # its state is final and stays as it is

    def next_end(self) -> float:
        """Return a time before which no push ends; infinite if none will end."""
        return self._ending[0][0] if self._ending else inf

    def find(self, company: str, key: str) -> Operation | None:
        """The push *key* of *company*."""
        operation = self._by_key.get(key)
        return operation if operation is not None and operation.company == company else None

    def of_company(self, company: str, *, until: float = inf) -> list[Operation]:
        """The pushes of *company* requested up to *until*, oldest first."""
        operations = self._of_company.get(company, [])
        if until == inf:
            return operations
        return operations[: bisect_right(operations, until, key=lambda op: op.requested)]

    def _note_end(self, operation: Operation) -> None:
        end = _end(operation)
        if end < inf:
            heapq.heappush(self._ending, (end, next(self._turns), operation))
            if self.watcher is not None:
                self.watcher.due(end)

    def _finish(self, operation: Operation, at: float) -> None:
        # "The service guarantees the operation is not processed after the deadline." Only the
        # published service does not, where the platform has it already: `Faults.late_effect`.
        if operation.late or operation.ends > operation.deadline:
            operation.status = "TimedOut"
            if operation.late and not operation.problems:
                heapq.heappush(self._ending, (operation.ends, next(self._turns), operation))
        else:
            if not operation.problems:
                self._take_effect(operation)
            operation.status = "Failed" if operation.problems else "Success"
        operation.completed = at
        operation.row = None
        if self.watcher is not None:
            self.watcher.ended(operation)


def _end(operation: Operation) -> float:
    return min(operation.ends, operation.deadline)
