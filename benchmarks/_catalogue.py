"""Every question there is, in the order in which they are listed and asked."""

from __future__ import annotations

from benchmarks import _pushing, _reading, import_time
from benchmarks._question import Question


def questions() -> tuple[Question, ...]:
    """Return all questions."""
    return (*_reading.QUESTIONS, *_pushing.QUESTIONS, *import_time.QUESTIONS)
