"""The rules of the SDK, as plain functions and state objects without I/O.

Nothing here uses an event loop, a socket, the clock or randomness: time and chance are passed as
arguments. ::

    arguments                       check what callers pass
    codec, plain, shapes            read and write JSON, objects and the document's shapes
    model_fields, pydantic_models   read the fields of users' classes
    cache                           keep values for a while
    notifications                   read and verify webhooks
    paging/                         which pages to fetch, and their items
    options/                        push options: check a record, JSON Schema, form
    polling/                        which pushes to poll, and when
    pushing/                        the push protocol

Those of HTTP stand beside what obeys them, in ``_http``.
"""
