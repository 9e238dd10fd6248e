"""Async iteration over lists.

``pager`` is the public class, ``readings`` are its iterators, ``reader`` is one reading of a
list, ``fetching`` requests pages ahead, ``slices`` keeps the event loop responsive, and
``checkpoint`` keeps a cursor in a file.

Which pages to fetch is decided without I/O: ``walk`` is the base of all ways to read a list,
``page_walk`` follows the links, ``repair`` reads a list that changes, and ``changes`` what has
changed since a moment. ``page_queue`` holds the pages to read, ``links`` checks next links,
``page_size`` chooses sizes. ``splitting`` and ``page`` decode a page, ``cursor`` writes and reads
cursors, ``drift`` looks for changes of the list, ``report`` holds progress and statistics.
"""
