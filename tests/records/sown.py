"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "pydantic reads Decimals through floats": Fault(
        "_records/pydantic_models.py",
        'if "decimal" not in kinds and not (exact and is_free):\n        read: Callable[[bytes], Any] = model.model_validate_json\n        return read',
        "if not (exact and is_free):\n        read: Callable[[bytes], Any] = model.model_validate_json\n        return read",
        "pydantic",
        "reader",
    ),
    "a union reads otherwise beside a Decimal": Fault(
        "_records/pydantic_models.py",
        "if not _NATIVE.issuperset(types):\n            return (\n                f\"the union of {' and '.join(types)}: \"\n                'give it a discriminator, or Field(union_mode=\"left_to_right\")'\n            )",
        "if not types:\n            return (\n                f\"the union of {' and '.join(types)}: \"\n                'give it a discriminator, or Field(union_mode=\"left_to_right\")'\n            )",
        "pydantic",
        "_changed",
    ),
    "an Any field keeps pydantic's helper": Fault(
        "_records/pydantic_models.py",
        "if type(value) is ExactFloat:\n        return plain(str(value))",
        "if value is None:\n        return plain(str(value))",
        "pydantic",
        "_without_exact_floats",
    ),
}
