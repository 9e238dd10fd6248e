"""Parts of generated records: identifiers, amounts, dates, line items.

Every record is a function of (seed, scope, index), so none has to be stored. Identifiers look
like UUIDs and can be turned back into the index.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Protocol

from integration_sdk.sandbox._books.words import ACCOUNTS, THINGS

DAYS = 1461
FIRST_DAY = date(2021, 1, 1)
CENT = Decimal("0.01")
ODD = 0x9E3779B97F4B
MASK = (1 << 48) - 1
_ODD_INVERSE = pow(ODD, -1, 1 << 48)


class Ids:
    """Identifiers of one kind of record: a prefix and the index, shuffled reversibly."""

    def __init__(self, *scope: object) -> None:
        h = blake2b("/".join(map(str, scope)).encode(), digest_size=10).hexdigest()
        self.prefix = f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-"

    def __getitem__(self, index: int) -> str:
        return f"{self.prefix}{index * ODD & MASK:012x}"

    def index(self, identifier: str) -> int | None:
        """The index behind *identifier*, or None if it is not one of these."""
        shuffled = identifier.removeprefix(self.prefix)
        if shuffled == identifier or len(shuffled) != 12:
            return None
        try:
            return int(shuffled, 16) * _ODD_INVERSE & MASK
        except ValueError:
            return None


class Source(Protocol):
    """Generated records 0..count-1 of one kind, as JSON rows."""

    ids: Ids
    count: int

    def row(self, index: int) -> bytes:
        """One record as JSON."""
        ...

    def rows(self, start: int, stop: int) -> Sequence[bytes]:
        """The records *start* to *stop*."""
        ...


def stamps(n: int) -> dict[str, str]:
    """Return when record *n* was changed: in the service and at the source."""
    return {"modifiedDate": f"{day(n)}T09:30:00Z", "sourceModifiedDate": f"{day(n)}T08:15:00Z"}


def money(chance: random.Random, most: int) -> Decimal:
    """Return an amount of up to *most*, exact to the cent."""
    return Decimal(chance.randrange(100, most * 100)).scaleb(-2)


def day(n: int) -> date:
    """Return the day of record *n*; days repeat after four years."""
    return FIRST_DAY + timedelta(days=n % DAYS)


def midnight(n: int, *, later: int = 0) -> str:
    """The start of record *n*'s day, or of a *later* one, without a zone (read as UTC)."""
    return f"{day(n) + timedelta(days=later)}T00:00:00"


def lines(
    chance: random.Random, accounts: Ids, items: Ids
) -> tuple[list[dict[str, Any]], Decimal, Decimal]:
    """Return line items, their total, and the tax in it, exact to the cent."""
    chosen = [chance.randrange(len(THINGS)) for _ in range(chance.choice((3, 3, 4)))]
    entries = [_line(chance, n, accounts, items) for n in chosen]
    total = sum((entry["totalAmount"] for entry in entries), Decimal(0))
    return entries, total, sum((entry["taxAmount"] for entry in entries), Decimal(0))


def _line(chance: random.Random, n: int, accounts: Ids, items: Ids) -> dict[str, Any]:
    unit, quantity = money(chance, 400), Decimal(chance.randrange(1, 12)).quantize(CENT)
    net = (unit * quantity).quantize(CENT)
    tax = (net / 5).quantize(CENT)
    return {
        "description": THINGS[n],
        "unitAmount": unit,
        "quantity": quantity,
        "subTotal": net,
        "taxAmount": tax,
        "totalAmount": net + tax,
        "accountRef": {"id": accounts[n % 2], "name": ACCOUNTS[n % 2][1]},
        "taxRateRef": {"id": "VAT20", "name": "VAT at 20%", "effectiveTaxRate": 20},
        "itemRef": {"id": items[n], "name": THINGS[n]},
    }
