"""JSON, users' classes and the service's objects, without I/O.

``codec`` reads and writes JSON. ``classes`` decodes items into users' classes, which ``building``
makes with cattrs and ``pydantic_models`` lets pydantic make; ``writing`` makes plain values of
them. ``shapes`` reads the objects of the interface document, ``columns`` makes Arrow tables.
"""
