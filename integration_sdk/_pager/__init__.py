"""Async iteration over lists: `pager` is what people hold, `readings` its iterators,
`stream` one reading, `fetching` what is on its way, `checkpoint` a place kept in a file.
"""
