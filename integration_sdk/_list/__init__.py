"""Lists: async iteration over many pages.

``pager`` is the list that users have, ``reader`` one reading of it: it requests pages ahead and
hands out items. Two walks decide without I/O which page comes next: ``links`` follows the links,
and knows places in a list; ``changes`` reads what was changed since a moment. ``page`` splits an
answer.
"""
