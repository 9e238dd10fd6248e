"""State that outlives a call, a block or a process: pushes on record, and limits of calls.

A store does not know the push protocol. It enforces what must always hold: a reference is one row,
a push key has one owner, and a row gives way to its next version only. Rows are kept for good.

* ``store``: `Store`, the public name of all of this.
* ``row``: a push as it is recorded.
* ``sql``: the tables and every statement, one text for both databases.
* ``sqlite``: a file, for one process. ``postgres``: a database, for many.
* ``journal``: the rows of a scope: grouped writes, claims of dead workers' rows, heartbeats.
* ``rate``: limits of calls that all users of a store keep together.
"""
