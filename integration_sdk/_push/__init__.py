"""Pushes: one row each, which moves through one table; many pushes, one polling loop.

Rules, which do no I/O and read no clock:

* ``table``: the states of a push, what happens in each, and what each asks for. Begin here.
* ``protocol`` and ``reconcile``: the machines that take these steps: how a push is sent, and how
  one whose answer was lost is found. ``effects``: what they ask of their driver.
* ``evidence``: which of the listed pushes is ours; ``agreement``: whether two records agree;
  ``searches``: when to look again.
* ``submissions``: requests and rows of a `PushRequest`; ``answers``: what the service says of
  pushes; ``outcomes``: what the caller is told; ``progress``: how far the pushes have got.
* ``schedule``: whom to poll now; ``worth``: when that is worth a request, and what notifications
  and lists are worth; ``completion_times``: how long pushes take; ``open_pushes``: their data.

The shell:

* ``coordinator``: the public class; ``options``: its options; ``bulk``: its `run` method.
* ``push``: the handle of one push; ``references``: which of them holds which reference.
* ``sender``: takes a push from submission, or from an earlier run, to the service's answer;
  ``places``: how many at a time.
* ``tracker``: takes it from there to its outcome; ``waits``: ends bounded waits; ``decisions``:
  carries out the caller's decisions about pushes in doubt.
* ``push_protocol``: runs the machines; its ``driver`` sends, records and waits, ``push_list``
  reads the service's list.
* ``poller``: polls open pushes for everybody; ``poll_requests`` makes its requests.
* ``tasks``: background tasks, whose crashes are heard of; ``clock``: the time.
"""
