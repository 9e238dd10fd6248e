"""Lists: async iteration over many pages.

``pager`` is the public list and its iterators, ``reader`` one reading of it: it requests pages
ahead, keeps the event loop responsive, and hands out items.

The rest is decided without I/O: ``walk`` which pages to fetch, by following links as read by
``links``; ``repair`` the same in a list that changes, and ``changes`` for what has changed since
a moment. ``page`` decodes, ``cursor`` writes and reads places, ``drift`` looks for changes of the
list and holds what is reported.
"""
