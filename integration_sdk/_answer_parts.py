"""Classes for parts of any answer: pages, error bodies and rate limits.

Users import them from `models`, which adds the classes for pushes. They are kept apart so that
a program that only reads lists does not load the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from attrs import Factory, field, frozen

T_co = TypeVar("T_co", covariant=True)
Extra = Mapping[str, Any]


# Pages


@frozen(kw_only=True)
class Links:
    """The navigation links of a page, as the service wrote them (usually relative).

    Source: "Page envelope", ``_links``.
    """

    self_: str | None = None
    current: str | None = None
    next: str | None = None
    previous: str | None = None


@frozen(kw_only=True)
class Page(Generic[T_co]):
    """One page of a list: a sequence of its items.

    Attributes:
        results: Up to ``page_size`` items, in the service's order.
        page_number: Counted from 1.
        page_size: Items per full page; the service may cap what you asked for.
        total_results: Records in the whole result set, after any filter.
        links: Links to the neighbouring pages; ``links.next`` is None on the last page.
        extra: Envelope fields that the document does not name.

    Source: "Page envelope (list responses)".
    """

    results: Sequence[T_co] = field(repr=lambda results: f"[{len(results)} items]")
    page_number: int
    page_size: int
    total_results: int
    links: Links = field(default=Links(), repr=False)
    extra: Extra = field(factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.results)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self.results[index]

    @property
    def total_pages(self) -> int:
        """Number of pages of this size in the whole result set; 0 if it is empty."""
        return -(-self.total_results // self.page_size) if self.page_size else 0


# Validation, in error bodies and push operations


@frozen(kw_only=True)
class ValidationItem:
    """One validation message: the item, what is wrong with it, and which validator found it."""

    message: str | None = None
    item_id: str | None = None
    validator_name: str | None = None
    extra: Extra = Factory(dict)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.item_id, self.message) if part) or "no message"


@frozen(kw_only=True)
class Validation:
    """Validation messages: ``errors`` explain a failure, ``warnings`` do not stop a push.

    Source: "Error body" and "Push operation". Assumed: a push operation's
    ``validation`` has the members of the error body's, as the service publishes.
    """

    errors: Sequence[ValidationItem] = field(default=(), eq=tuple)
    warnings: Sequence[ValidationItem] = field(default=(), eq=tuple)
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class ErrorBody:
    """The body of an error response.

    ``status_code`` is the body's; the HTTP status counts, even if they differ.
    Quote ``correlation_id`` when you write to the service's support.

    Source: "Error body".
    """

    status_code: int | None = None
    service: str | None = None
    error: str | None = None
    correlation_id: str | None = None
    validation: Validation | None = None
    can_be_retried: str | None = None
    detailed_error_code: int | None = None
    extra: Extra = Factory(dict)


# Rate limits


@frozen(kw_only=True)
class Quota:
    """The last ``X-Rate-Limit-*`` headers seen. Assumed: published, not in the document.

    Attributes:
        limit: Number of requests allowed in the period.
        remaining: Number of requests left in it.
        reset: When the period ends, in UTC; None if the service did not say.
    """

    limit: int | None = None
    remaining: int | None = None
    reset: datetime | None = None
