"""Companies x data types into files and databases: each state of a record once, in whole units.

A *unit* is one company's records of one type. `unit` says what is known of it and what follows,
`state` keeps that in a store, `pull` reads many units at once, and a sink (`sink`) commits data
and cursor together.
"""
