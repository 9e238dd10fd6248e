"""Finds out whether lists show states that are out of date.

A list itself does not tell. So until one has shown an end in time, a push that it shows as
Pending is now and then read singly too. A push that turns out to have ended long before its
company was last listed proves the list late.
"""

from __future__ import annotations

from math import inf
from typing import Final

from attrs import define

from integration_sdk._push.open_pushes import OpenPush

LATE: Final = 2.0
"""Seconds, plus a twentieth of a push's age, that a list may still show it as Pending."""


@define
class ListCheck:
    """What is known of the service's lists.

    Attributes:
        in_time: Whether they show ends in time; None if not known.
    """

    in_time: bool | None = None
    _probe_at: float = -inf

    def wants(self, push: OpenPush, now: float) -> bool:
        """Whether to read *push*, which a list shows as Pending, singly too.

        One push of all companies until a list has shown an end in time; one of each company once
        a list was late.
        """
        company = push.company
        probe_at = self._probe_at if self.in_time is None else company.probe_at
        if self.in_time or now < probe_at:
            return False
        self._probe_at = company.probe_at = now + 2 * max(1.0, now - push.born)
        return True

    def proves_late(self, push: OpenPush, took: float) -> bool:
        """Whether the list showed *push* as Pending long after its end, *took* seconds old."""
        company = push.company
        if push.read_singly:  # the list lacked it, which is known
            return False
        late = push.seen - push.born - took > LATE + 0.05 * took
        if late:
            self.in_time = False
        elif company.listing and self.in_time is None:
            self.in_time = True
        return late
