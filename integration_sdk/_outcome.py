"""What becomes of one push of a coordinator."""

from __future__ import annotations

from typing import cast

from attrs import frozen

from integration_sdk._text import brief
from integration_sdk.errors import IntegrationError
from integration_sdk.models import OutcomeStatus, PushOperation, PushRequest


@frozen(kw_only=True)
class PushOutcome:
    """The result of one `PushRequest`.

    Example::

        async for outcome in pushes.run(requests):
            if outcome.status is OutcomeStatus.SUCCESS:
                print(outcome.reference, outcome.key)
            elif isinstance(outcome.error, PushInDoubt):  # IN_DOUBT
                print("decide about", outcome.error.intent, outcome.error.candidates)
            else:
                print(outcome.reference, outcome.status, outcome.reasons)

    Attributes:
        status: See `OutcomeStatus`.
        request: The request.
        operation: The last known state; None if there is no push, or none was found.
        error: Why the status is not SUCCESS, as an exception; None for SUCCESS.

    Guide: docs/guides/in-doubt.md.
    """

    status: OutcomeStatus
    request: PushRequest
    operation: PushOperation | None = None
    error: IntegrationError | None = None
    __repr__ = brief

    @property
    def reference(self) -> str | None:
        """The request's reference."""
        return self.request.reference

    @property
    def key(self) -> str | None:
        """The push operation's key; None if there is no operation."""
        return self.operation.push_operation_key if self.operation else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the status is not SUCCESS: a text for each problem. Empty for SUCCESS."""
        return self.error.reasons if self.error else ()

    def raise_for_status(self) -> PushOutcome:
        """Return self if the push succeeded, else raise ``error``."""
        if self.error is not None:
            raise self.error
        return self

    def result(self) -> PushOperation:
        """Return the operation if the push succeeded, else raise ``error``."""
        return cast("PushOperation", self.raise_for_status().operation)  # a success has one
