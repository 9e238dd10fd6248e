"""Asyncio client SDK for the Data Integration Service API.

`Client` is the door; ``integration_sdk.sandbox`` is the service to test
against, ``integration_sdk.testing`` a pytest plugin, ``integration_sdk.webhooks``
receives "Push status changed".

A public name is imported when it is first used: pytest loads this package in every run
of a project that has it installed, and a program that only reads lists needs nothing of
pushes. For the same reason some functions import what is for pushes only.
Type checkers see the same names in ``_public``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from integration_sdk._version import __version__ as __version__

if TYPE_CHECKING:
    from integration_sdk._public import *
else:
    _HOMES = {
        "_client": "Client",
        "_coordinator.coordinator": "Coordinator",
        "_coordinator.options": "CoordinatorOptions",
        "_coordinator.push": "Push PushEvent",
        "_pager.checkpoint": "Checkpoint",
        "_pager.pager": "ListOptions Pager",
        "_pager.readings": "ListPage",
        "_connections": "Connection",
        "_resources": "Company",
        "_sansio.options.form": "ControlKind FormControl",
        "_sansio.options.options": "Problem ProblemCode PushOptions Severity",
        "_sansio.paging.report": "Drift ListProgress ListReport",
        "_sansio.pushing.outcomes": "PushProgress",
        "_sansio.requests": "Priority",
        "_sansio.throttling.retry": "RetryPolicy",
        "_session": "CallInfo SessionStats",
        "dialect": "Dialect Route",
        "errors": """
            AccountExpired AnswerLost ApiError BadRequest ClientClosed
            CompanyLimitReached ConfigurationError Conflict DriftWarning
            EndpointRemoved Forbidden IntegrationError InternalServerError InvalidItem
            InvalidRecord JournalError MalformedResponse MethodNotAllowed NotFound
            NotSent PaginationError PaymentRequired PollingStopped PushError
            PushFailed PushInDoubt ResponseTooLarge ResultSetChanged
            ServiceUnavailable SyncScheduleNotAllowed TooManyRequests
            TransportError Unauthorized UnsafeLink WaitExpired
        """,
        "models": """
            ErrorBody Links OptionEntry OptionRule OptionRules OutcomeStatus Page
            PropertyDescription PushChange PushOperation PushOutcome PushRequest
            PushStatus Quota RecordRef Validation ValidationItem
        """,
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name == "errors":
            return import_module("integration_sdk.errors")
        if name == "__all__":
            return __dir__()
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"integration_sdk.{_HOME_OF[name]}"), name)

    def __dir__() -> list[str]:
        return ["__version__", "errors", *_HOME_OF]
