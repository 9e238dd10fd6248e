"""Whether memory stays flat while a million requests flow through ``run``.

An async generator makes the requests, ``run(max_open=2000)`` pulls and pushes them, in virtual
time, against a model of the service in which a push takes about two seconds. The coordinator,
its polling and its schedule are the real ones. The model's own memory is subtracted.

    python -m benchmarks scale_run           takes minutes; not part of `all`
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import AsyncIterator
from functools import partial

from benchmarks._goals import GOALS
from benchmarks._question import Question, Row, Rows, row
from benchmarks._service_model import Service
from benchmarks.peers._frame import record, resident_mib
from integration_sdk import Dialect, PushRequest
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.poller import Poller
from integration_sdk.testing import run_virtual

COMPANIES = 10
MAX_OPEN = 2000


async def _requests(count: int) -> AsyncIterator[PushRequest]:
    for number in range(count):
        yield PushRequest(f"company-{number % COMPANIES}", "connection", "invoices", record(number))


async def _flow(count: int) -> Row:
    chance = random.Random(7)
    service = Service(partial(chance.uniform, 1.5, 2.5))
    dialect = Dialect.document()
    poller = Poller(service.send, dialect, chance=chance.random)
    memory: list[float] = []
    settled, began = 0, time.process_time()
    async with Coordinator(service, poller, dialect, max_open=MAX_OPEN) as coordinator:
        async for _ in coordinator.run(_requests(count)):
            settled += 1
            if settled % (count // 10) == 0:
                gc.collect()
                memory.append(resident_mib() - service.mib)
    await poller.aclose()
    spent = time.process_time() - began
    return row(
        f"{count:,} pushes",
        "integration_sdk",
        settled=settled,
        requests_a_push=service.kinds.total() / count,
        CPU_us_a_push=spent / count * 1e6,
        MiB_first_tenth=memory[0],
        MiB_grown=max(memory) - memory[0],
    )


def scale_run(quick: bool) -> Rows:
    """Push all requests and measure memory."""
    return Rows([run_virtual(_flow(10_000 if quick else 1_000_000))])


SCALE_RUN = Question(
    "scale_run",
    "Does memory stay flat while a million requests flow through run(max_open=2000)?",
    scale_run,
    goals=GOALS["scale_run"],
    on_request=True,
)
QUESTIONS = (SCALE_RUN,)
