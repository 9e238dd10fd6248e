"""Text that the service chose reaches no terminal, log or message as it is.

Whoever can write a validation message could otherwise retitle a window, hide what a command has
said, or forge lines of a log.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from integration_sdk import errors
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response, read_error
from integration_sdk._records.codec import encode_value
from integration_sdk._text import printable

NASTY = (
    "\x1b]0;owned\x07\x1b[2J\r\nERROR forged\x85\x9b31m\u2028"
    " \u202egnp.exe\u2066 é 鍵 👩‍👩‍👧\u00a0€\x7f"
)
TEXTS = st.text(st.characters(exclude_categories=())) | st.text(
    "\x1b\n\r\x85\u202eab\\", max_size=9
)


def is_safe(text: str) -> bool:
    """Whether a terminal shows *text* in one line, in the order in which it is read."""
    return not any(
        unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(char)
        in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        or char in "\u061c\u200e\u200f"
        for char in text
    )


def test_each_character_is_kept_or_named() -> None:
    """Letters of every script, spaces and joiners stay; the rest is written as in JSON."""
    planes = (*range(0x11000), *range(0xE0000, 0xE0200))  # the rest is CJK and unassigned
    for char in map(chr, planes):
        safe = printable(char)
        assert is_safe(safe)
        assert safe == char if is_safe(char) else json.loads(f'"{safe}"') == char


@given(st.dictionaries(TEXTS, TEXTS))
@example({NASTY: NASTY})
def test_json_stays_the_same_json(value: dict[str, str]) -> None:
    """A line of output may be escaped as a whole, and twice is once."""
    for ascii_ in (True, False):
        line = printable(json.dumps(value, ensure_ascii=ascii_))
        assert is_safe(line)
        assert printable(line) == line
        assert json.loads(line) == value


def test_every_logger_of_the_package_is_guarded() -> None:
    """A new one is not forgotten; the sandbox's own logs what a caller has percent-encoded.

    A harmless record keeps its template: what groups by it, as Sentry does, goes on to do so.
    """
    package = Path(errors.__file__).parent
    text = "".join(file.read_text() for file in package.rglob("*.py"))
    named = set(re.findall(r'getLogger\("([a-z_.]+)"\)', text))
    ours = {"integration_sdk.webhooks", *named} - {
        "integration_sdk.sandbox",
        "integration_sdk.testing",
    }
    assert len(ours) > 4

    for name in ours:
        heard, plain = (
            logging.LogRecord(name, 20, "", 0, "a %s", (text,), None) for text in (NASTY, "k")
        )
        assert logging.getLogger(name).filter(heard)
        assert is_safe(heard.getMessage()), name
        logging.getLogger(name).filter(plain)
        assert (plain.msg, plain.args) == ("a %s", ("k",))


@given(TEXTS.filter(str.strip), st.sampled_from([302, 400, 402, 404, 500, 503]))
def test_the_message_of_an_error_is_one_line(text: str, status: int) -> None:
    """The service's words are quoted in it; as data they stay what they were."""
    clean = text.encode("utf-8", "replace").decode()
    items = [{"itemId": clean, "message": clean, "validatorName": clean}]
    content = {"correlationId": clean, "error": clean, "validation": {"errors": items}}
    answer = Response(status=status, body=encode_value(content), headers={"Location": f"/{clean}"})

    error = read_error(Request(operation="x", method="GET", path="/x"), answer)

    assert is_safe(str(error))
    assert error.body.error == clean
