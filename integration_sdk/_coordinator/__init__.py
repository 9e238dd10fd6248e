"""Many pushes, one polling loop.

``coordinator`` is what people hold, ``options`` what it is told, ``bulk`` feeds it lazily,
``push`` is one push in somebody's hand. ``desk`` is the life of one push: ``references`` says who
has its reference, ``delivery`` drives the push protocol, ``snapshots`` knows what was there
before, ``waits`` ends waits, ``takeover`` goes on with what an earlier run left, and ``decisions``
carries out what the caller decides of a doubt; ``tasks`` are what these begin. ``poller`` follows
open pushes for everybody; ``looks`` makes its requests. ``push_list`` reads a company's pushes for
the protocol.
"""
