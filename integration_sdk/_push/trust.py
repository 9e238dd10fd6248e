"""How far notifications are relied upon: a number from 0 to 1 that changes with each end.

Polls are put off while a notification may still come, the longer the more ends were notified. It
takes many that were notified to be trusted, and few that were not to be polled as if there were
none.
"""

from __future__ import annotations

from typing import Final

from integration_sdk._push.open_pushes import OpenPush

GAINED: Final = 1 / 8
"""Share of the missing trust that a notification adds."""
KEPT: Final = 1 / 2
"""Share of the trust that is left after a push ended without a notification."""
NONE: Final = 0.1
"""Trust below which there may be no notifications at all: from full trust, four ends had none."""
NOTIFICATION_WAIT: Final = 60.0
"""Seconds to wait for a notification at first, if none has ever been lost."""
LAST_POLL: Final = 2.0
"""Seconds before the end of a wait at which to poll all the same."""


def after_end(trust: float, *, notified: bool) -> float:
    """Return the trust after a push has ended, of which a notification came if *notified*."""
    return trust + GAINED * (1.0 - trust) if notified else trust * KEPT


def is_lost(trust: float) -> bool:
    """Return whether notifications may as well not come."""
    return trust < NONE


def notification_wait_ends(push: OpenPush, trust: float) -> float:
    """Return until when to wait for a notification of *push* instead of polling it.

    With full trust, that is a minute plus half of its age after it was last seen, so a long push
    whose notifications are lost is polled ever more rarely. With less trust, it is much sooner:
    a process that hears half of the ends notices nine in ten as soon as one that hears none.
    """
    return push.seen + trust**3 * (NOTIFICATION_WAIT + (push.seen - push.born) / 2)


def last_poll(wait: float) -> float:
    """Return after how many of *wait* seconds to poll, whether or not a notification came.

    Otherwise an end that is not notified would be missed by each wait of a caller that ends
    before the wait for the notification.
    """
    return wait - min(LAST_POLL, wait / 4)
