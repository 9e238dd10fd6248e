"""Many pushes, one polling loop.

* ``coordinator``: the public class; ``options``: its options; ``bulk``: its `run` method.
* ``push``: the handle of one push.
* ``sender``: takes each push from submission to the service's answer.
* ``tracker``: takes it from there to its outcome.
* ``key_refusals``: whether the API key is still accepted.
* ``references``: which push holds which reference.
* ``push_protocol``: runs the push protocol; its ``driver`` sends, records and waits.
  ``push_list`` and ``snapshots`` read the service's list of pushes.
* ``waits``: ends bounded waits; ``tasks``: background tasks; ``clock``: the time.
* ``recovery``: continues what an earlier run left in the journal.
* ``decisions``: carries out the caller's decisions about pushes in doubt.
* ``poller``: polls open pushes for everybody; ``poll_requests`` makes its requests.
"""
