"""Asyncio client SDK for the Data Integration Service API.

Start with `Client`. ``integration_sdk.sandbox`` is a service to test against,
``integration_sdk.testing`` a pytest plugin, and ``integration_sdk.webhooks`` receives
notifications.
"""

# Each public name is imported on first use: pytest loads this package in every project that has
# it installed, and a program that only reads lists does not need the modules for pushes. For the
# same reason some functions import those modules themselves. The import statements are for type
# checkers and for tools that bundle a program with what it imports; `_HOMES` says the same at
# run time. Annotations name what is not imported yet as ``integration_sdk.PushOperation``, so that
# `typing.get_type_hints` imports it, too, on first use.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration_sdk import errors as errors
    from integration_sdk._client import Client as Client
    from integration_sdk._http import CallInfo as CallInfo
    from integration_sdk._http import SessionStats as SessionStats
    from integration_sdk._http import SharedRate as SharedRate
    from integration_sdk._http.requests import Priority as Priority
    from integration_sdk._http.retry import RetryPolicy as RetryPolicy
    from integration_sdk._list.drift import Drift as Drift
    from integration_sdk._list.drift import ListProgress as ListProgress
    from integration_sdk._list.drift import ListReport as ListReport
    from integration_sdk._list.pager import Checkpoint as Checkpoint
    from integration_sdk._list.pager import ListPage as ListPage
    from integration_sdk._list.pager import Pager as Pager
    from integration_sdk._options.check import Problem as Problem
    from integration_sdk._options.check import ProblemCode as ProblemCode
    from integration_sdk._options.check import PushOptions as PushOptions
    from integration_sdk._options.check import Severity as Severity
    from integration_sdk._options.render import ControlKind as ControlKind
    from integration_sdk._options.render import FormControl as FormControl
    from integration_sdk._pull.pull import Pull as Pull
    from integration_sdk._pull.pull import PullProgress as PullProgress
    from integration_sdk._pull.receipts import Receipt as Receipt
    from integration_sdk._pull.receipts import UnitReceipt as UnitReceipt
    from integration_sdk._push.coordinator import Coordinator as Coordinator
    from integration_sdk._push.push import Push as Push
    from integration_sdk._push.push import PushEvent as PushEvent
    from integration_sdk._push.push import PushProgress as PushProgress
    from integration_sdk._resources import BankAccounts as BankAccounts
    from integration_sdk._resources import Companies as Companies
    from integration_sdk._resources import Company as Company
    from integration_sdk._resources import Connection as Connection
    from integration_sdk._resources import Listing as Listing
    from integration_sdk._resources import Profile as Profile
    from integration_sdk._resources import Pushes as Pushes
    from integration_sdk._store.store import Store as Store
    from integration_sdk._version import __version__ as __version__
    from integration_sdk.dialect import Dialect as Dialect
    from integration_sdk.dialect import Route as Route
    from integration_sdk.errors import AccountExpired as AccountExpired
    from integration_sdk.errors import AnswerLost as AnswerLost
    from integration_sdk.errors import ApiError as ApiError
    from integration_sdk.errors import BadRequest as BadRequest
    from integration_sdk.errors import ClientClosed as ClientClosed
    from integration_sdk.errors import CompanyLimitReached as CompanyLimitReached
    from integration_sdk.errors import ConfigurationError as ConfigurationError
    from integration_sdk.errors import Conflict as Conflict
    from integration_sdk.errors import DriftWarning as DriftWarning
    from integration_sdk.errors import EndpointRemoved as EndpointRemoved
    from integration_sdk.errors import Forbidden as Forbidden
    from integration_sdk.errors import IntegrationError as IntegrationError
    from integration_sdk.errors import InternalServerError as InternalServerError
    from integration_sdk.errors import InvalidItem as InvalidItem
    from integration_sdk.errors import InvalidRecord as InvalidRecord
    from integration_sdk.errors import JournalError as JournalError
    from integration_sdk.errors import JournalInUse as JournalInUse
    from integration_sdk.errors import MalformedResponse as MalformedResponse
    from integration_sdk.errors import MethodNotAllowed as MethodNotAllowed
    from integration_sdk.errors import NotFound as NotFound
    from integration_sdk.errors import NotSent as NotSent
    from integration_sdk.errors import PaginationError as PaginationError
    from integration_sdk.errors import PaymentRequired as PaymentRequired
    from integration_sdk.errors import PollingStopped as PollingStopped
    from integration_sdk.errors import PullError as PullError
    from integration_sdk.errors import PushError as PushError
    from integration_sdk.errors import PushFailed as PushFailed
    from integration_sdk.errors import PushInDoubt as PushInDoubt
    from integration_sdk.errors import PushingStopped as PushingStopped
    from integration_sdk.errors import ReferenceConflict as ReferenceConflict
    from integration_sdk.errors import ResponseTooLarge as ResponseTooLarge
    from integration_sdk.errors import ResultSetChanged as ResultSetChanged
    from integration_sdk.errors import ServiceUnavailable as ServiceUnavailable
    from integration_sdk.errors import StoreUnavailable as StoreUnavailable
    from integration_sdk.errors import SyncScheduleNotAllowed as SyncScheduleNotAllowed
    from integration_sdk.errors import TooManyRequests as TooManyRequests
    from integration_sdk.errors import TransportError as TransportError
    from integration_sdk.errors import Unauthorized as Unauthorized
    from integration_sdk.errors import UnsafeLink as UnsafeLink
    from integration_sdk.errors import WaitExpired as WaitExpired
    from integration_sdk.models import ErrorBody as ErrorBody
    from integration_sdk.models import Links as Links
    from integration_sdk.models import OptionEntry as OptionEntry
    from integration_sdk.models import OptionRule as OptionRule
    from integration_sdk.models import OptionRules as OptionRules
    from integration_sdk.models import OutcomeStatus as OutcomeStatus
    from integration_sdk.models import Page as Page
    from integration_sdk.models import PropertyDescription as PropertyDescription
    from integration_sdk.models import PushChange as PushChange
    from integration_sdk.models import PushOperation as PushOperation
    from integration_sdk.models import PushOutcome as PushOutcome
    from integration_sdk.models import PushRequest as PushRequest
    from integration_sdk.models import PushStatus as PushStatus
    from integration_sdk.models import Quota as Quota
    from integration_sdk.models import RecordRef as RecordRef
    from integration_sdk.models import Validation as Validation
    from integration_sdk.models import ValidationItem as ValidationItem

_HOMES = {
    name: f"{__name__}.{home}"
    for home, names in {
        "_client": "Client",
        "_pull.pull": "Pull PullProgress",
        "_pull.receipts": "Receipt UnitReceipt",
        "_push.coordinator": "Coordinator",
        "_push.push": "Push PushEvent PushProgress",
        "_list.pager": "Checkpoint ListPage Pager",
        "_resources": "BankAccounts Companies Company Connection Listing Profile Pushes",
        "_store.store": "Store",
        "_options.render": "ControlKind FormControl",
        "_options.check": "Problem ProblemCode PushOptions Severity",
        "_list.drift": "Drift ListProgress ListReport",
        "_http.requests": "Priority",
        "_http.retry": "RetryPolicy",
        "_http": "CallInfo SessionStats SharedRate",
        "_version": "__version__",
        "dialect": "Dialect Route",
        "errors": (
            "AccountExpired AnswerLost ApiError BadRequest ClientClosed CompanyLimitReached "
            "ConfigurationError Conflict DriftWarning EndpointRemoved Forbidden IntegrationError "
            "InternalServerError InvalidItem InvalidRecord JournalError JournalInUse "
            "MalformedResponse MethodNotAllowed NotFound NotSent PaginationError PaymentRequired "
            "PollingStopped PullError PushError PushFailed PushInDoubt PushingStopped "
            "ReferenceConflict ResponseTooLarge ResultSetChanged ServiceUnavailable "
            "StoreUnavailable SyncScheduleNotAllowed TooManyRequests TransportError Unauthorized "
            "UnsafeLink WaitExpired"
        ),
        "models": (
            "ErrorBody Links OptionEntry OptionRule OptionRules OutcomeStatus Page "
            "PropertyDescription PushChange PushOperation PushOutcome PushRequest PushStatus Quota "
            "RecordRef Validation ValidationItem"
        ),
    }.items()
    for name in names.split()
}
"""The module that defines each public name."""


if not TYPE_CHECKING:  # type checkers would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return __dir__()
        if name == "errors":
            return import_module(f"{__name__}.errors")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return ["errors", *_HOMES]
