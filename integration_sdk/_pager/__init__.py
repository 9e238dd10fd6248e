"""Async iteration over lists.

``pager`` is what users hold, ``readings`` are its iterators, ``stream`` is one reading of a
list, ``fetching`` the pages that are being requested, ``turns`` keeps the event loop
responsive, and ``checkpoint`` keeps a cursor in a file.
"""
