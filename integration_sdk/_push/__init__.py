"""One push, from the caller's record to its outcome, and how many are followed together.

Read in this order:

* ``table``: the states of a push and what can happen in each; what one transmission proves.
* ``dispatcher``: carries rows from state to state; the one place that says what a state needs.
* ``sending``: on record, its turn, sent once, answered. ``search``: what became of a lost answer.
* ``evidence``, ``agreement``: which listed push is ours (pure).
* ``wire``, ``answers``: the service as pushes see it, read no further than needed.
* ``handles``, ``push``, ``outcomes``: what callers hold, and a row in words.
* ``run``, ``coordinator``: the public block.
* ``schedule``: whom to poll when (pure). ``poller``: the loop that polls for everybody.

Where a push stands is said by its row in ``_store``; all else here may be lost at any moment.
"""
