"""Companies x data types into files and databases: each state of a record once.

A *unit* is one company's records of one type. Its state lives where its data is and is committed
with it (`folder`, `sql`), so there is no other store. `reader` reads one unit, `pull` many of them,
`dask` those of a cluster's workers.
"""
