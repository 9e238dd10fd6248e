"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an old signature counts": Fault(
        "_notifications.py", "abs(now - int(sent)) > TOLERANCE", "False", "webhooks", "signed_id"
    ),
    "a dot in the id": Fault(
        "_notifications.py", '"." in message_id', "False", "webhooks", "signed_id"
    ),
    "a repeated notification counts twice": Fault(
        "webhooks.py", "self._ids[message_id] = None", "pass", "webhooks", "Receiver._is_repeated"
    ),
    "an unsigned id silences a push": Fault(
        "webhooks.py", "signed or own_id", 'headers.get("webhook-id", own_id)', "webhooks",
        "Receiver._judge",
    ),
    "an empty secret": Fault(
        "webhooks.py", "(isinstance(value, str) and value for value in listed)",
        "(isinstance(value, str) for value in listed)", "webhooks", "_listed",
    ),
    "options are remembered for ever": Fault(
        "_context.py", "asked_at < since", "asked_at < 0", "client", "Remembered.get"
    ),
    "that there are none is remembered as long as options": Fault(
        "_context.py", "max(since, now - REFUSAL_TTL)", "since", "client", "Remembered.get"
    ),
    "a client's retry= is not its coordinator's": Fault(
        "_client.py", "FIVE_TIMES if retry is THREE_TIMES else retry", "FIVE_TIMES", "client",
        "Client.coordinator",
    ),
    "a refresh of one connection is one of all": Fault(
        "_companies.py", "data_types is None and connection_id is None", "data_types is None",
        "reach", "Company.refresh",
    ),
    "a link of a page is lost": Fault(
        "_list/page.py", 'links.get("previous")', "None", "client", "read_page"
    ),
    "each task that waits for data polls": Fault(
        "_companies.py", "loop.time() - 0.9 * pause", "loop.time() + 1", "reach",
        "Company.wait_until_ready",
    ),
    "help shows how a company is made": Fault(
        "_handed_out.py", "Signature([Parameter('self', Parameter.POSITIONAL_OR_KEYWORD)])", "None",
        "public_parts", "handed_out",
    ),
    "an empty list populates": Fault(
        "_options/description.py", '(None, "", [])', '(None, "")', "options", "Field.is_empty"
    ),
    "true is the choice 1": Fault(
        "_options/description.py", "(bool, value)", "value", "options", "_same"
    ),
}  # fmt: skip
