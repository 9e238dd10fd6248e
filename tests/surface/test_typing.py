"""What type checkers know. The promises are kept by `mypy`, which reads the tests as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from attrs import frozen

from integration_sdk import Client, ListPage, Pager


@frozen
class Invoice:
    id: str


class OurClient(Client):
    """A client that knows its service."""


async def traced(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    return await handler(request)


def test_a_subclass_stays_one_with_other_options() -> None:
    """What `with_options` returns has the methods that a subclass adds."""
    client = OurClient("key", "https://api.example", middlewares=[traced])

    assert_type(client.with_options(timeout=5), OurClient)
    assert type(client.with_options(timeout=5)) is OurClient


def test_a_function_of_general_pages_takes_special_ones() -> None:
    """Pages and pagers cannot be written to, so their items may be of a more special type."""
    invoices: Pager[dict[str, Any]] = Client("key", "https://api.example").companies.list()
    page = ListPage(
        results=[{"id": "1"}], page_number=1, page_size=1, total_results=1, cursor="after"
    )

    general: tuple[ListPage[Mapping[str, object]], Pager[Mapping[str, object]]] = (page, invoices)

    assert_type(page, ListPage[dict[str, str]])
    assert general == (page, invoices)


async def test_items_have_the_type_of_their_model(integration_client: Client) -> None:
    """Whichever way a list is read, a type checker knows its items."""
    pager = integration_client.companies.list(model=Invoice)

    assert_type(pager, Pager[Invoice])
    assert_type(await pager, ListPage[Invoice])
    assert_type(await pager.first(), Invoice | None)
    assert_type(await pager.collect(limit=1), list[Invoice])
    assert_type([item async for item in pager], list[Invoice])
    assert_type([page async for page in pager.pages()], list[ListPage[Invoice]])
    assert isinstance(await pager.first(), Invoice)


def test_a_plain_for_is_refused_by_type_checkers() -> None:
    """A list is awaited; the unused-ignore warning of mypy keeps this promise."""
    pager: Pager[dict[str, Any]] = Client("key", "https://api.example").companies.list()

    with pytest.raises(TypeError, match="async for"):
        iter(pager)  # type: ignore[call-overload]  # the promise
