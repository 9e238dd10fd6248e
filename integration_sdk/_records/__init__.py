"""JSON, users' classes and the service's objects, without I/O.

``codec`` reads and writes JSON, ``classes`` and ``pydantic_models`` read the fields of users'
classes, ``reading`` makes items of such classes, ``writing`` makes plain JSON values of them, and
``shapes`` reads the objects of the interface document.
"""
