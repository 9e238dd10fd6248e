"""Notifies subscribers of the ends of pushes, with proofs, retries and the faults in force.

Two shapes are published. *rule*: the rule era's PascalCase envelope, with an ``Authorization``
header of the subscriber's choosing. *signed*: today's events, signed by Standard Webhooks.

The service computes the end of a push only when it is asked. So, while there are subscribers, a
task sleeps until the next end or the next letter, whichever comes first.

Source: "Events"; payload, signing and retries are "not shown". Assumed: as published; an answer of
2xx within 15 seconds is an acknowledgement. Only the end of a push is notified, not that it was
recorded, which its own answer says.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
from base64 import b64decode, b64encode
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Annotated, Literal

import aiohttp
import msgspec
from attrs import evolve, field, frozen
from msgspec import Meta

from integration_sdk.sandbox._call import Clock, Forgery, body, encode, iso, new_uuid
from integration_sdk.sandbox._pushes import VERBS, Ledger, Operation
from integration_sdk.sandbox._schemas import option_name
from integration_sdk.sandbox._service import HeaderText, checked

Style = Literal["rule", "signed"]
RETRIES = (10.0, 30.0, 80.0)
"""Seconds between attempts: "3 retries in 2 minutes". Assumed for the signed style, too."""
PATIENCE = 15.0
_SIGNED = r"^whsec_(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z"
logger = logging.getLogger("integration_sdk.sandbox")


class Subscription(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A subscriber to the ends of pushes.

    Attributes:
        url: Where notifications are posted to.
        style: The shape: ``rule`` or ``signed``.
        authorization: Value of the ``Authorization`` header, or None for none.
        secret: ``whsec_...`` that signed notifications are signed with.
        rule_id: The service's identifier of this subscription.
        client_id: The service's identifier of the account.
    """

    url: Annotated[str, Meta(pattern="^https?://[^/?#:]")]
    style: Style
    authorization: HeaderText | None
    secret: Annotated[str, Meta(pattern=_SIGNED)] | None
    rule_id: str
    client_id: str

    def __repr__(self) -> str:
        return f"Subscription(url={self.url!r}, style={self.style!r})"


@frozen
class Delivery:
    """An attempt to deliver a notification, which has the same *id* in every attempt.

    Attributes:
        key: The push that it named.
        forged: What was wrong with it, if anything.
        attempt: 0 for the first attempt, then the number of the retry.
        at: The service's time of the attempt.
        status: The subscriber's answer; 0 for none.
    """

    to: Subscription
    id: str
    key: str
    body: bytes = field(repr=False)
    forged: Forgery | None = None
    attempt: int = 0
    at: float = 0.0
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    status: int = 0


def _headers(letter: Delivery, now: float) -> dict[str, str]:
    headers, to = {"Content-Type": "application/json"}, letter.to
    is_theirs = letter.forged == "secret"
    if to.authorization is not None:
        headers["Authorization"] = "Bearer forged" if is_theirs else to.authorization
    if to.secret is not None:
        secret = _new_secret(random.Random(to.secret)) if is_theirs else to.secret
        key, stamp = b64decode(secret.removeprefix("whsec_")), str(int(now))
        message = b".".join((letter.id.encode(), stamp.encode(), letter.body))
        proof = b64encode(hmac.digest(key, message, "sha256")).decode()
        headers |= {"webhook-id": letter.id, "webhook-timestamp": stamp}
        headers["webhook-signature"] = f"v1,{proof}"  # by Standard Webhooks
    return headers


def _new_secret(chance: random.Random) -> str:
    return f"whsec_{b64encode(chance.randbytes(24)).decode()}"


def _body(to: Subscription, op: Operation, message_id: str, key: str, status: str) -> bytes:
    data_type = option_name(op.data_type)
    completed = None if op.completed is None else iso(op.completed)
    values = {
        "id": message_id,
        "client": to.client_id,
        "rule": to.rule_id,
        "company": op.company,
        "connection": op.connection,
        "data_type": data_type,
        "status": status,
        "key": key,
        "message": f"A push of {data_type} changed status to {status}",
        "event": f"{data_type}.write.{'' if status == 'Success' else 'un'}successful",
        "kind": VERBS[op.verb][1],
        "requested": iso(op.requested),
        "completed": completed,
        "generated": completed or iso(op.requested),
    }
    return encode(body(to.style, **values))


class Notifier:
    """Posts notifications to subscribers.

    Args:
        seed: Fixes identifiers and secrets.
        remember: How many of the latest attempts are kept.
    """

    def __init__(self, clock: Clock, ledger: Ledger, seed: int, *, remember: int) -> None:
        self._clock, self._ledger, self._remember = clock, ledger, remember
        self._chance = random.Random(f"{seed}/notifications")
        self._subscriptions: list[Subscription] = []
        self._outbox: list[tuple[float, int, Delivery]] = []
        self._turns = count()
        self._changed = asyncio.Event()
        ledger.on_push = self._note
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self.deliveries: list[Delivery] = []

    def subscribe(
        self, url: str, style: Style, authorization: str | None, secret: str | None
    ) -> Subscription:
        if style == "rule" and secret is not None:
            raise ValueError('secret is for style="signed"; a rule is proved by authorization=')
        if style == "signed" and secret is None:
            secret = _new_secret(self._chance)
        given = {"url": url, "style": style, "authorization": authorization, "secret": secret}
        ids = {"rule_id": new_uuid(self._chance), "client_id": new_uuid(self._chance)}
        to = checked(given | ids, Subscription)
        self._ledger.settle(self._clock.now())
        self._subscriptions.append(to)
        self._changed.set()
        return to

    def start(self) -> None:
        if self._subscriptions and not self._tasks:
            self._spawn(self._run())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        self._outbox.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _note(self, push: Operation) -> None:
        """Schedule the notifications of the end of *push*, or those that forge it."""
        begins = push.completed is None
        at = push.requested if begins else push.end
        for to in self._subscriptions:
            message_id = new_uuid(self._chance)
            for notice in push.notices:
                if (notice.forged == "early") != begins:
                    continue
                status = "Success" if begins else push.status
                is_other = notice.forged in {"key", "early"}
                own_id = new_uuid(self._chance) if is_other else message_id
                key = new_uuid(self._chance) if notice.forged == "key" else push.key
                body = _body(to, push, own_id, key, status)
                letter = Delivery(to, own_id, key, body, notice.forged)
                heappush(self._outbox, (at + notice.delay, next(self._turns), letter))
        self._changed.set()

    async def _run(self) -> None:
        self._changed = asyncio.Event()  # of this loop
        self._clock.on_change = self._changed.set
        while True:
            self._changed.clear()
            now = self._clock.now()
            self._ledger.settle(now)
            while self._outbox and self._outbox[0][0] <= now:
                self._spawn(self._deliver(heappop(self._outbox)[2]))
            at = min([self._ledger.next_end(), *(at for at, *_ in self._outbox[:1])])
            with suppress(TimeoutError):
                async with asyncio.timeout(None if at == inf else max(at - now, 0.0)):
                    await self._changed.wait()

    async def _deliver(self, letter: Delivery) -> None:
        at = self._clock.now()
        tried = evolve(letter, at=at, headers=_headers(letter, at))
        tried = evolve(tried, status=await self._post(tried))
        self.deliveries.append(tried)
        del self.deliveries[: -self._remember or None]
        if not 200 <= tried.status < 300 and letter.attempt < len(RETRIES):
            again = evolve(letter, attempt=letter.attempt + 1)
            heappush(self._outbox, (at + RETRIES[letter.attempt], next(self._turns), again))
            self._changed.set()

    async def _post(self, letter: Delivery) -> int:
        """Return the status that the subscriber answered; 0 for none."""
        if self._session is None:
            jar, wait = aiohttp.DummyCookieJar(), aiohttp.ClientTimeout(total=PATIENCE)
            self._session = aiohttp.ClientSession(cookie_jar=jar, timeout=wait)
        try:
            async with self._session.post(
                letter.to.url, data=letter.body, headers=letter.headers, allow_redirects=False
            ) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.info("a notification did not reach %s: %s", letter.to.url, error)
            return 0
