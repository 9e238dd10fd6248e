"""The rules of the SDK, as plain functions and state objects without I/O.

Nothing here knows an event loop, a socket, the clock or randomness: time and chance are
arguments. ::

    requests, routes, custom        a call becomes a Request
    arguments                       checks of what callers pass
    responses, shapes               a Response becomes a value or an error
    codec, plain                    JSON, read and written; objects become plain dicts
    model_fields, pydantic_models   the fields of users' classes
    origin, retry_after, cache      where the key may go; when to retry; what is remembered
    notifications                   webhooks, read and verified
    paging/                         which pages to fetch, and what they hold
    options/                        push options: check a record, JSON Schema, form
    throttling/                     when a call may leave, and whether it may be sent again
    polling/                        which pushes to ask for, and when
    pushing/                        the push protocol
"""
