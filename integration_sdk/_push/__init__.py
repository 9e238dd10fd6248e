"""Pushes, from the caller's record to its outcome, and how many are followed together.

Read in this order: ``table`` (states, and what one transmission proves), ``holder`` (the life of a
push), ``carrier`` (one transmission), ``search`` (lost answers, decisions, other workers),
``evidence`` and ``agreement`` (which listed push is ours), ``schedule`` and ``polling``, ``wire``
(the service as pushes see it), ``outcomes`` and ``push`` (what callers get), ``run`` and
``coordinator`` (the public block).

* Push: one record on its way. Row: what is recorded of it. Holder: the process that takes it on.
* Lane: company, connection and data type. Reference: the caller's own name for a push.
* Natural key: the field that identifies a record. Echo: the record as a push shows it.
* Doubt: a push whose answer was lost and that no listing has settled.
* Mark: the newest keys of a company's list before a push was sent.
* Ghost: a transmission whose push is not identified. Rival: a row with ghosts in the same lane.
"""
