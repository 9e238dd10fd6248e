"""The schedule of rounds of companies and appointments of pushes.

Each company or push has at most one time, which it stores itself; entries of the agenda that name
another time are outdated and skipped.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from attrs import Factory, define

from integration_sdk._sansio.polling.open_pushes import OpenPush, PolledCompany


@define
class Agenda:
    """Rounds and appointments, ordered by time."""

    _rounds: list[tuple[float, int, PolledCompany]] = Factory(list)
    _appointments: list[tuple[float, int, OpenPush]] = Factory(list)
    _entries: int = 0

    def round(self, company: PolledCompany, at: float) -> None:
        """Schedule the round of *company*, in place of an earlier one."""
        company.round_at = at
        self._entries += 1
        if at != inf:
            heappush(self._rounds, (at, self._entries, company))

    def meet(self, push: OpenPush, at: float) -> None:
        """Schedule the appointment of *push*, in place of an earlier one."""
        push.due = at
        self._entries += 1
        heappush(self._appointments, (at, self._entries, push))

    def wake_at(self) -> float:
        """Return the next time; infinite for none."""
        rounds, appointments = self._rounds, self._appointments
        while rounds and rounds[0][2].round_at != rounds[0][0]:
            heappop(rounds)
        while appointments and appointments[0][2].due != appointments[0][0]:
            heappop(appointments)
        return min(rounds[0][0] if rounds else inf, appointments[0][0] if appointments else inf)

    def come(self, now: float) -> tuple[list[PolledCompany], list[OpenPush]]:
        """Remove and return the companies and pushes whose time has come."""
        companies: list[PolledCompany] = []
        pushes: list[OpenPush] = []
        while self.wake_at() <= now:
            if self._rounds and self._rounds[0][0] <= now:
                company = heappop(self._rounds)[2]
                company.round_at = inf
                companies.append(company)
            else:
                push = heappop(self._appointments)[2]
                push.due = inf
                pushes.append(push)
        return companies, pushes
