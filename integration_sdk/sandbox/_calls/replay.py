"""Idempotency keys, which the published service supports and the document does not mention.

The service keeps its answer to a POST for 90 minutes under its ``Idempotency-Key`` and repeats it
for the same request, even a 5xx. It does not keep a 429, nor answers of faults in front of the
service. The same key with another query or body is 422; with a request in progress it is 409.

Assumed: the published behaviour; the document shows no such header and its dialect ignores it.
"""

from __future__ import annotations

from attrs import define, evolve, field

from integration_sdk.sandbox._call import Answer, Call, Handler, Refused

KEPT_SECONDS = 90 * 60


@define
class _Kept:
    request: tuple[object, ...]
    at: float
    answer: Answer | None = None


@define
class Replays:
    """Answers kept, by idempotency key."""

    kept: dict[str, _Kept] = field(factory=dict)

    async def through(self, call: Call, handle: Handler) -> Answer:
        """Return the kept answer to *call*, or that of *handle*, which is then kept."""
        key = call.headers.get("Idempotency-Key")
        if call.method != "POST" or not key:
            return await handle(call)
        known = self._known(key, call)
        if known is not None:
            return known
        entry = self.kept[key] = _Kept(_request(call), call.now)
        try:
            entry.answer = await handle(call)
        finally:
            if not _keeps(entry.answer) and self.kept.get(key) is entry:
                del self.kept[key]
        return entry.answer

    def _known(self, key: str, call: Call) -> Answer | None:
        entry = self.kept.get(key)
        if entry is None or call.now - entry.at > KEPT_SECONDS:
            return None
        if entry.request != _request(call):
            raise Refused(422, "The Idempotency-Key was used for another request")
        if entry.answer is None:
            raise Refused(409, "Conflict: a request with this Idempotency-Key is at work")
        return evolve(entry.answer, cut=None)


def _request(call: Call) -> tuple[object, ...]:
    return call.path, call.params, call.body


def _keeps(answer: Answer | None) -> bool:
    return answer is not None and answer.status != 429
