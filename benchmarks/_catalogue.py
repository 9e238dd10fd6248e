"""All questions: those in the `QUESTIONS` of the modules of this package."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import benchmarks
from benchmarks._question import Question


def questions() -> dict[str, Question]:
    """Return all questions by name, in the order of their modules' names.

    Raises:
        ValueError: Two questions have the same name.
    """
    found: dict[str, Question] = {}
    for question in _in_all_modules():
        if question.name in found:
            raise ValueError(f"two questions are called {question.name}")
        found[question.name] = question
    return found


def _in_all_modules() -> list[Question]:
    names = [module.name for module in iter_modules(benchmarks.__path__)]
    modules = [import_module(f"benchmarks.{name}") for name in names if name != "__main__"]
    return [question for module in modules for question in getattr(module, "QUESTIONS", ())]
