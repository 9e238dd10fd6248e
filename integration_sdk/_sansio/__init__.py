"""The rules of the SDK, as plain functions and state objects without I/O.

Nothing here uses an event loop, a socket, the clock or randomness: time and chance are passed as
arguments. ::

    requests, routes, custom        build a Request for each operation
    arguments                       check what callers pass
    responses, shapes               turn a Response into a value or an error
    codec, plain                    read and write JSON; turn objects into plain dicts
    model_fields, pydantic_models   read the fields of users' classes
    origin, retry_after, cache      check URLs; read Retry-After; keep values for a while
    masking                         hide the API key where an answer echoes it
    notifications                   read and verify webhooks
    paging/                         which pages to fetch, and their items
    options/                        push options: check a record, JSON Schema, form
    throttling/                     when a call may be sent, and whether to send it again
    polling/                        which pushes to poll, and when
    pushing/                        the push protocol
"""
