"""Makes calls with the session, settings and dialect of a client."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import Factory, frozen

from integration_sdk._http import CallOptions, Session, Slot, requests, responses
from integration_sdk._http.requests import DEFAULT_PAGE_SIZE, Request
from integration_sdk._http.responses import Response
from integration_sdk._list.changes import MODIFIED, ChangesFilter
from integration_sdk._list.page import Decode
from integration_sdk._list.pager import ListOptions, Pager
from integration_sdk._records.codec import Json
from integration_sdk._records.shapes import structure
from integration_sdk._remembered_options import RememberedOptions
from integration_sdk._warnings import warn_if_legacy
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, MalformedResponse

if TYPE_CHECKING:
    from integration_sdk._options.check import Problem, PushOptions
    from integration_sdk.models import PushOperation

logger = logging.getLogger("integration_sdk.pushes")

MOST_WARNINGS = 1000
"""Maximum number of kinds of warnings that are logged."""


@frozen
class Caller:
    """Sends requests with the settings of one client.

    Attributes:
        dialect: The version of the service.
        session: Shared by all clients that ``with_options`` derived.
        settings: Timeout, retries and priority of each call.
        exact: Whether fractions are read as Decimal.
        remembered: Push options, remembered for some minutes.
        warned: Kinds of warnings that have been logged.
    """

    dialect: Dialect
    session: Session
    settings: CallOptions
    exact: bool = False
    remembered: RememberedOptions = Factory(RememberedOptions)
    warned: set[tuple[str, str, str]] = Factory(set)

    @property
    def numbers(self) -> Literal["float", "decimal"]:
        """How fractions are read: the ``numbers`` argument of `Client` and `ListOptions`."""
        return "decimal" if self.exact else "float"

    def to_route(self, operation: str, **names: str) -> Request:
        """Return a request for one of the dialect's operations, without body."""
        return requests.to_route(self.dialect, operation, **names)

    async def send(self, request: Request, *, patience: float | None = None) -> Response:
        """Send *request* and return the answer, whatever its status; see `Session.send`."""
        return await self.session.send(request, self.settings, patience=patience)

    def slot(self, request: Request) -> AbstractAsyncContextManager[Slot]:
        """Wait for *request*'s turn, to send it once; see `Session.slot`."""
        return self.session.slot(request, self.settings)

    async def json(self, request: Request) -> Json:
        """Send *request* and return the decoded body."""
        body = responses.read_json(request, await self.send(request), exact=self.exact)
        warn_if_legacy(request)
        return body

    async def push(self, request: Request) -> PushOperation:
        """Send *request* and return the push operation in the answer."""
        return read_push(request, await self.send(request), exact=self.exact)

    async def options(self, request: Request, *, refresh: bool = False) -> PushOptions:
        """Return push options, remembered for some minutes."""

        async def ask() -> PushOptions:
            return read_options(request, await self.send(request))

        return await self.remembered.get(request.target, ask, refresh=refresh)

    def warn(self, place: str, problem: Problem) -> None:
        """Log a warning about records pushed to *place*, each kind once."""
        kind = (place, problem.code, re.sub(r"\d+", "", problem.path))
        if kind not in self.warned and len(self.warned) < MOST_WARNINGS:
            self.warned.add(kind)
            logger.warning("%s: %s", place, problem)

    def pager(
        self,
        operation: str,
        names: Mapping[str, Any],
        *,
        model: Any = None,
        decode: Decode | None = None,
        **options: Any,
    ) -> Pager[Any]:
        """Return a pager over one of the dialect's lists; *options* are `ListOptions`.

        Raises:
            TypeError: There is no such option.
            ConfigurationError: An option has a value that cannot work.
        """
        of_items = {"model"} if decode is None else set[str]()
        refuse_unknown("list", options, ListOptions.__optional_keys__ | of_items)
        _refuse_conflicts(options)
        changes = self._changes(options)
        page, size = options.pop("page", None), options.get("page_size", DEFAULT_PAGE_SIZE)
        request = requests.list_page(
            self.dialect,
            operation,
            page=1 if page is None else page,
            page_size=size,
            query=options.pop("query", None),
            order_by=options.pop("order_by", None),
            **names,
        )
        if model is not None and decode is not None:
            raise TypeError("this list() has no option 'model': its items are PushOperations")
        options.setdefault("numbers", self.numbers)
        return Pager(
            self.send,
            request,
            base_url=self.session.base_url,
            model=model,
            decode=decode,
            changes=changes,
            timeout=self.settings.timeout,
            **options,
        )

    def _changes(self, options: dict[str, Any]) -> ChangesFilter | None:
        """Return the filter for ``changed_since``, if given, and put it into *options*."""
        since, by = options.pop("changed_since", None), options.pop("changed_by", MODIFIED)
        if since is None:
            return None
        changes = ChangesFilter.of(since, by, self.dialect.query_parameter, options.get("query"))
        options |= {"query": changes.text, "order_by": changes.field}
        return changes


def read_push(request: Request, response: Response, *, exact: bool = False) -> PushOperation:
    """Return the push operation in the answer to a push, an update or a poll.

    One that cannot be read in full has its key, company and status; see `answers.read_brief`.
    """
    responses.check(request, response)
    operation: PushOperation = responses.placed(
        request, response, _read_push, response.body, exact=exact
    )
    return operation


def _read_push(body: bytes, *, exact: bool) -> PushOperation:
    from integration_sdk._push import answers  # noqa: PLC0415 - for pushes only

    try:
        return answers.read_full(body, exact=exact)
    except MalformedResponse as problem:
        return answers.read_brief(body, problem)


def read_options(request: Request, response: Response) -> PushOptions:
    """Return the push options description."""
    from integration_sdk._options.check import PushOptions  # noqa: PLC0415 - for pushes only
    from integration_sdk.models import PropertyDescription  # noqa: PLC0415 - for pushes only

    value = responses.read_json(request, response)
    return PushOptions.of(
        responses.placed(request, response, structure, value, PropertyDescription)
    )


_CONFLICTS: Final = {
    "changed_since": ("order_by", "on_drift", "page"),
    "page": ("cursor", "checkpoint"),
}
"""Options of a list that each do without some others."""


def _refuse_conflicts(options: Mapping[str, Any]) -> None:
    given = {name for name, value in options.items() if value is not None}
    for name, others in _CONFLICTS.items():
        if name in given and (both := given.intersection(others)):
            raise ConfigurationError(f"{name}= does not go with {min(both)}=; leave one out")
    if "changed_by" in given and "changed_since" not in given:
        raise ConfigurationError("changed_by= needs changed_since=; order_by= orders a list")


def refuse_unknown(call: str, options: Iterable[str], known: Collection[str]) -> None:
    """Check the names of *options*, which Python does not for those of a TypedDict.

    Raises:
        TypeError: One is not *known*; says which was probably meant.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            has = ", ".join(sorted(known))
            raise TypeError(f"{call}() has no option {name!r}{meant} (it has {has})")
