"""Four invented platforms: what can be pushed to each, and when it answers.

Ledgerline is slow: it answers later, as most do. Swiftbooks is synchronous: it answers at once.
Deskledger is offline: it runs on a computer that is switched off, so pushes stay Pending.
Strictbooks is strict: it refuses every field that is not described.

Source: "States and transitions", rule 1 (offline) and the synchronous row. Assumed: which
platforms there are ("published elsewhere", What the service does 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from attrs import evolve, field, frozen

from integration_sdk.sandbox._pushes.catalogue import DATA_TYPES
from integration_sdk.sandbox._pushes.options import Shape


@frozen(eq=False)
class Platform:
    """An accounting package that a company may have connected.

    Args:
        key: The four letters by which the service identifies it.
        pace: ``later``, ``at once`` or ``never``: when it answers a push.
        strict: Whether it refuses fields that its description does not list.
        needs: Additional required properties, by data type.
        lacks: Data types that cannot be pushed to it.
    """

    name: str
    key: str
    pace: str = field(default="later", kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    needs: Mapping[str, tuple[str, ...]] = field(factory=dict, kw_only=True)
    lacks: frozenset[str] = field(default=frozenset(), kw_only=True)

    def shape(self, data_type: str) -> Shape | None:
        """Return the shape of records that can be pushed as *data_type*, if any."""
        return self._shapes.get(data_type)

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        return {
            data_type: _requiring(shape, self.needs.get(data_type, ()))
            for data_type, shape in DATA_TYPES.items()
            if data_type not in self.lacks
        }


def _requiring(shape: Shape, names: tuple[str, ...]) -> Shape:
    needed = {name: evolve(shape.properties[name], required=True) for name in names}
    return evolve(shape, properties={**shape.properties, **needed})


PLATFORMS = (
    Platform("Ledgerline", "ldgl"),
    Platform("Swiftbooks", "swft", pace="at once", lacks=frozenset({"journalEntries"})),
    Platform("Deskledger", "dskl", pace="never", needs={"invoices": ("dueDate",)}),
    Platform(
        "Strictbooks",
        "strb",
        strict=True,
        needs={"invoices": ("invoiceNumber", "dueDate", "currency"), "bills": ("reference",)},
    ),
)
