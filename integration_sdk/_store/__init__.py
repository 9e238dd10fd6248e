"""State that outlives a call, a block or a process: pushes, documents of pulls, limits of calls.

A store does not know the push protocol. It keeps the rows that the rules in ``_push`` make, all of
a commit or none, and enforces what must always hold: a push key has one owner, a reference stands
for one push, a row gives way to its next version only, the end of a push never changes, and who
has lost the lease of a company writes nothing more about it. Every row is kept for good.

* ``store``: `Store`, the public name of all of this.
* ``rows``: what pushes and pulls need from it; ``row``: a push as it is kept.
* ``memory``: used if the caller names no place; forgets what is settled.
* ``sqlite``: a file, for one process; one thread, commits in groups. ``place``: whose it is.
* ``postgres``: a database, for many processes, each of which acts for some companies under a
  lease. ``database``: its connections and tables.
* ``rate``: limits of calls that all users of a store keep together.
* ``waiting``: waiting for work that ends even if nobody waits for it any more.
"""
