"""Many pushes, one polling loop.

``coordinator`` is what people hold, ``bulk`` feeds it lazily, ``dispatch`` is the life
of one push, ``delivery`` drives the push protocol, ``poller`` follows open pushes for
everybody with the help of ``looks`` (one request each) and ``push_list`` (pages of the
list); ``push`` is one push in somebody's hand, ``waits`` the ends of waits.
"""
