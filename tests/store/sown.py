"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an old version overwrites a new one": Fault(
        "_store/rows.py", "old.version + 1 != new.version", "False", "store_rows", "check_next"
    ),
    "one key, two rows in memory": Fault(
        "_store/memory.py",
        "if row.key in claimed or self._is_owned(row.key):\n                    raise key_claimed(row.key)",
        "if False:\n                    raise key_claimed(row.key)",
        "store_rows",
        "MemoryRows.put",
    ),
    "a lease is asked for at each notification": Fault(
        "_store/postgres.py",
        "now() + POLL if self._hears else 0.0",
        "0.0",
        "store_postgres",
        "PostgresRows.take",
    ),
    "a hard link is opened": Fault(
        "_store/place.py",
        'if found.st_nlink > 1:\n        raise JournalError(\n            f"{path} has a second name (a hard link), under which another process could open it: "\n            "copy the file and open the copy."\n        )',
        'if False:\n        raise JournalError(\n            f"{path} has a second name (a hard link), under which another process could open it: "\n            "copy the file and open the copy."\n        )',
        "store_sqlite",
        "refuse_strangers",
    ),
    "what is no file is opened": Fault(
        "_store/place.py",
        'if not stat.S_ISREG(found.st_mode):\n        what = "a link: name the file itself" if stat.S_ISLNK(found.st_mode) else "no regular file"\n        raise JournalError(f"The journal {path} cannot be opened: it is {what}.")',
        'if False:\n        what = "a link: name the file itself" if stat.S_ISLNK(found.st_mode) else "no regular file"\n        raise JournalError(f"The journal {path} cannot be opened: it is {what}.")',
        "store_sqlite",
        "refuse_strangers",
    ),
    "a journal that others may read": Fault(
        "_store/place.py", "os.fchmod(descriptor, 0o600)", "pass", "store_sqlite", "own_file"
    ),
    "another file is overwritten": Fault(
        "_store/place.py",
        'if head and head != _MAGIC:\n        raise JournalError(f"{path} is not a journal of this SDK and was not changed.")',
        'if False:\n        raise JournalError(f"{path} is not a journal of this SDK and was not changed.")',
        "store_sqlite",
        "refuse_others",
    ),
    "a slot is used however late": Fault(
        "_store/rate.py",
        "if _now() <= at + EXPIRES and at >= self._void_before:\n                return",
        "if at >= self._void_before:\n                return",
        "store_rates shared_rate",
        "StoreRate.acquire",
    ),
    "a pause voids no slot": Fault(
        "_store/rate.py",
        "if _now() <= at + EXPIRES and at >= self._void_before:\n                return",
        "if _now() <= at + EXPIRES:\n                return",
        "store_rates shared_rate",
        "StoreRate.acquire",
    ),
    "a pause without an end": Fault(
        "_store/rate.py",
        "seconds = min(seconds, LONGEST_PAUSE)",
        "pass",
        "store_rates shared_rate",
        "StoreRate.paused",
    ),
    "a shorter pause replaces a longer one": Fault(
        "_store/rate.py",
        "rate.paused_until = max(rate.paused_until, _now() + seconds)",
        "rate.paused_until = _now() + seconds",
        "store_rates shared_rate",
        "MemoryRates.pause",
    ),
    "the error of a rate is kept from callers": Fault(
        "_store/rate.py",
        "slot.set_exception(_copy_of(error))",
        "slot.cancel()",
        "store_rates",
        "StoreRate._filled",
    ),
    "a claim that is cancelled may be made later": Fault(
        "_store/postgres.py",
        "found = await to_the_end(asyncio.ensure_future(self._claim(name)))",
        "found = await self._claim(name)",
        "store_documents",
        "PostgresDocuments.claim",
    ),
}
