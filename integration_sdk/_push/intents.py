"""The recorded form of a push, its states, and what an answer to it proves.

A push is not idempotent and its answer can be lost, so an :class:`Intent` is on disk before the
first byte leaves, and whatever happens next is one step of this table::

    INTENT --> SENDING --> NOT_SENT     never left                        sent again by itself
                       --> REJECTED     refused by the service            429 and 503 only
                       --> ACKED        answered with a key of its own    never
                       --> AMBIGUOUS    anything else                     never (*)
    AMBIGUOUS          --> RESOLVED     a listing shows which push is ours
                       --> ABSENT       a listing shows no push of ours   evidence, not proof
                       --> UNRESOLVED   a listing cannot tell
    ABSENT, UNRESOLVED --> LATE         a later listing could tell
                       --> DECIDED      by the caller: resend, abandon, bind
    ACKED, RESOLVED, LATE, DECIDED(bind) --> FINAL      never changes again

    (*) A service that honours Idempotency-Key may be asked once more with the same key:
        AMBIGUOUS --> SENDING, a *replay*. Only an answer with a key ends the doubt then; a
        refusal of the replay says nothing about the first transmission.

``DECIDED(resend)`` starts a new intent. The old one is kept: its own request may still turn up
at the service, and must not be mistaken for another intent's.

``evidence`` judges listings; ``protocol`` and ``reconcile`` hold the machines that take these
steps, ``effects`` says what a driver has to do for them.
"""

import hashlib
from collections.abc import Mapping
from typing import assert_never

from attrs import field, frozen

from integration_sdk._http import judgement
from integration_sdk._http.judgement import Meaning
from integration_sdk._http.requests import Phase, Safety
from integration_sdk._push.agreement import natural_value
from integration_sdk._sansio.shapes import is_error_body
from integration_sdk._store.row import CREATES, Intent, Lane, State


def new_intent(
    lane: Lane,
    payload: bytes | None,
    *,
    id: str,  # noqa: A002  # the field's own name
    method: str = "POST",
    natural_key: str | None = None,
    record_id: str | None = None,
    reference: str | None = None,
    idempotency_key: str | None = None,
    timeout_minutes: int | None = None,
    hashed: bool = True,
) -> Intent:
    """Return the intent of a push that has not been sent yet.

    Raises:
        ValueError: The payload has no value at *natural_key*.
    """
    return Intent(
        id=id,
        lane=lane,
        method=method,
        payload=payload,
        payload_hash=hashlib.sha256(payload or b"").hexdigest() if hashed else "",
        natural_key=natural_key,
        natural_value=natural_value(payload, natural_key),
        record_id=record_id,
        reference=reference,
        idempotency_key=idempotency_key if method == CREATES else None,
        timeout_minutes=timeout_minutes,
    )


@frozen
class SendResult:
    """The result of one transmission.

    at: When the transmission began, in seconds of the driver's monotonic clock.
    status, body: Of a complete answer; *body* is its JSON object, None for anything else
        (truncated, HTML, a list).
    retry_after: Minimum seconds to wait, as asked by the service.
    cause: Readable reason why it was not sent, or how the answer was lost.
    """

    phase: Phase
    at: float = 0.0
    status: int | None = None
    body: Mapping[str, object] | None = field(default=None, repr=False)
    retry_after: float | None = None
    cause: str | None = None

    @property
    def key(self) -> str | None:
        """The pushOperationKey it carries, if any."""
        key = (self.body or {}).get("pushOperationKey")
        return key if isinstance(key, str) and key else None


ACKNOWLEDGED = frozenset({200, 202})


def classify(
    result: SendResult,
    *,
    key_is_known: bool,
    replay: bool = False,
    refuses_with_503: bool = True,
) -> State:
    """Return what the result of a transmission proves.

    ============== =============== ============================== =========
    phase          status          body                           class
    ============== =============== ============================== =========
    never left                                                    NOT_SENT
    may have left                                                 AMBIGUOUS
    answered       200 202         an object with an unseen key   ACKED
    answered       a refusal       the documented error body      REJECTED
    answered       anything else, or any other body               AMBIGUOUS
    ============== =============== ============================== =========

    Which statuses are refusals `judgement.TABLE` says.

    Args:
        result: What the transport saw.
        key_is_known: Whether its key was listed before we sent, or belongs to another intent: then
            a cache or proxy answered, not the service.
        replay: Whether an earlier transmission of this intent is in doubt: only ACKED ends that.
        refuses_with_503: From the dialect: a 503 by the service itself means nothing was done.

    Source: "Status codes", "Error body"; which of them exclude an effect is PUSH-PROTOCOL.
    """
    match _meaning(result, refuses_with_503=refuses_with_503):
        case Meaning.DONE if result.status in ACKNOWLEDGED and result.key and not key_is_known:
            return State.ACKED
        case Meaning.REFUSED | Meaning.AGAIN if not replay:
            return State.NOT_SENT if result.phase is Phase.NEVER_LEFT else State.REJECTED
        case Meaning.DONE | Meaning.REFUSED | Meaning.AGAIN | Meaning.IN_DOUBT | Meaning.GIVE_UP:
            return State.AMBIGUOUS
        case other:
            assert_never(other)


def _meaning(result: SendResult, *, refuses_with_503: bool) -> Meaning:
    if result.phase is not Phase.ANSWERED or result.status is None:
        return judgement.of_failure(Safety.WRITE, result.phase)
    is_own = is_error_body(result.body)
    return judgement.of_answer(
        Safety.WRITE, result.status, is_own=is_own, refuses_with_503=refuses_with_503
    )
