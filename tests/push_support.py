"""Short ways to a poller and a coordinator over `push_model.Model`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.poller import Poller
from integration_sdk.dialect import Dialect
from integration_sdk.models import PushOutcome, PushRequest
from tests.push_model import Model, request

DOCUMENT = Dialect.document()


def poller(model: Model, **options: Any) -> Poller:
    return Poller(model.send, DOCUMENT, chance=random.Random(7).random, **options)


@asynccontextmanager
async def coordinator(model: Model, **options: Any) -> AsyncIterator[Coordinator]:
    polls = options.pop("polls", None) or poller(model)
    dialect = options.pop("dialect", DOCUMENT)
    model.connection_name = model.connection_name or dialect.connection_name
    try:
        async with Coordinator(
            model,
            polls,
            dialect,
            chance=random.Random(8).random,
            **options,
        ) as pushes:
            yield pushes
    finally:
        await polls.aclose()


def requests(count: int, **options: Any) -> list[PushRequest]:
    return [request(number, **options) for number in range(count)]


async def collect(
    outcomes: AsyncIterator[PushOutcome], into: list[PushOutcome] | None = None
) -> list[PushOutcome]:
    """Gather outcomes; those that came before an exception are in *into*."""
    found = [] if into is None else into
    async for outcome in outcomes:
        found.append(outcome)
    return found


def numbers(outcomes: Sequence[PushOutcome]) -> list[int]:
    return [outcome.request.record["number"] for outcome in outcomes]
