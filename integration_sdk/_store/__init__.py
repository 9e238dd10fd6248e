"""State that outlives a call, a block or a process: pushes, and limits of calls.

A store does not know the push protocol. It keeps the rows that the rules in ``_push`` make, all
of a commit or none, and enforces what must always hold: a push key has one owner, a reference
stands for one push, a row gives way only to a later version of it, neither a final row nor what a
push sends ever changes, and who was replaced writes nothing more. Every row is kept for good.

* ``store``: `Store`, the public name of all of this.
* ``journal``: what pushes need from it; ``row``: a push as it is kept.
* ``sqlite``: a file, for one process; one thread, commits in groups. ``file``: opening and writing
  it; ``place``: whose it is; ``reading``: reading it, and detecting damage, also while another
  program writes; ``schema``: its tables, and how a row is stored.
* ``database``: PostgreSQL, for many processes, one of which carries the pushes under a lease;
  ``postgres``: its connections and tables.
* ``memory``: used if the caller names no place; keeps only the owner of each push key.
* ``rate``: limits of calls that all users of a store keep together.
* ``waiting``: waiting for work that ends even if nobody waits for it any more.
"""

from integration_sdk._store.journal import Journal
from integration_sdk._store.memory import KeyJournal
from integration_sdk._store.reading import JournalReader
from integration_sdk._store.sqlite import SqliteJournal
from integration_sdk._store.store import Store

__all__ = ["Journal", "JournalReader", "KeyJournal", "SqliteJournal", "Store"]
