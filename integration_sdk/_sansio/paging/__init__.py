"""Decides which pages to fetch, and decodes them.

``walk`` is the base of all ways to read a list: ``page_walk`` follows the links, ``repair``
reads a list that changes, and ``changes`` what has changed since a moment. ``page_queue`` holds
the pages to read, ``links`` checks next links, ``page_size`` chooses sizes. ``splitting`` and
``items`` decode a page, ``item_models`` prepares the user's classes for that. ``cursor`` writes
and reads cursors, ``drift`` looks for changes of the list, and ``report`` holds progress and
statistics.
"""
