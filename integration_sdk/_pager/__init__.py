"""Async iteration over lists.

``pager`` is the public class, ``readings`` are its iterators, ``stream`` is one reading of a
list, ``fetching`` requests pages ahead, ``slices`` keeps the event loop responsive, and
``checkpoint`` keeps a cursor in a file.
"""
