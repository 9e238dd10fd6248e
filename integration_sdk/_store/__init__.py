"""Where pushes are kept: in a file (`SqliteJournal`), or nowhere, if the caller names none.

A journal does not know the protocol. It stores the rows that the rules in ``_push`` make, all
of a commit or none, and enforces what must always hold: a push key has one owner, a reference
stands for one push, and neither a final row nor what an intent sends ever changes. A file keeps
every row for good; it refuses to delete one.

* ``store``: `Store`, the public name of all of this.
* ``journal``: what pushes need from it; ``row``: a push as it is kept.
* ``sqlite``: the asyncio interface of a journal file; one thread, commits in groups.
* ``file``: the file itself: opening and writing; ``place``: whose it is.
* ``reading``: reading it, and detecting damage; also while another program writes.
* ``schema``: its tables, and how a row is stored.
* ``memory``: used if the caller names no file; keeps only the owner of each push key.
"""

from integration_sdk._store.journal import Journal
from integration_sdk._store.memory import KeyJournal
from integration_sdk._store.reading import JournalReader
from integration_sdk._store.sqlite import SqliteJournal
from integration_sdk._store.store import Store

__all__ = ["Journal", "JournalReader", "KeyJournal", "SqliteJournal", "Store"]
