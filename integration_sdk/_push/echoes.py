"""The echoes of many pushes, stored by column so that an intent is compared with all at once.

A thousand pushes may be in doubt while a thousand are listed. For each place of a record, a
column says which pushes hold which value there. A set of pushes is an integer with one bit per
push, in the order given, so that a record of twenty values is compared with a thousand echoes in
twenty steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from attrs import define, field

from integration_sdk._push.agreement import (
    A_LIST,
    AN_OBJECT,
    Place,
    as_written,
    decode,
    leaf,
    places,
    value_at,
)
from integration_sdk._store.row import Intent

_NOTHING: Final = frozenset({AN_OBJECT, f"{A_LIST}0"})
"""Values that an echo may omit: objects, whose contents are compared anyway, and empty lists."""


class Said(NamedTuple):
    """How pushes compare with an intent, as two sets; pushes in neither contradict it.

    agreeing: Pushes that hold what we sent, at the natural key or everywhere.
    silent: Pushes that lack some of what we sent (platforms drop fields), without contradiction.
    """

    agreeing: int
    silent: int


@define
class _Column:
    """What pushes hold at one place: the pushes of each value, and those of any value."""

    holding: dict[str, int] = field(factory=dict)
    any: int = 0

    def add(self, value: str, push: int) -> None:
        self.holding[value] = self.holding.get(value, 0) | push
        self.any |= push


_EMPTY = _Column()


@define
class Echoes:
    """The echoes of some pushes; None or empty for a push without an echo yet."""

    _echoes: Sequence[Mapping[str, object] | None]
    _by_key: dict[str, _Column] = field(init=False, factory=dict)
    _by_place: dict[Place, _Column] = field(init=False, factory=dict)

    def compare(self, intent: Intent) -> Said:
        """Compare the echoes with what we sent: by the natural key, else value by value."""
        if intent.natural_key is not None:
            return self._compare_key(intent.natural_key, str(intent.natural_value))
        return self._compare_values(decode(intent.payload) if intent.payload else None)

    def _compare_key(self, path: str, value: str) -> Said:
        if path not in self._by_key:
            column = self._by_key[path] = _Column()
            for push, echo in self._told():
                held = leaf(value_at(echo, path))
                if held is not None:
                    column.add(as_written(held), push)
        column = self._by_key[path]
        return Said(column.holding.get(as_written(value), 0), self._all & ~column.any)

    def _compare_values(self, sent: object) -> Said:
        if not self._by_place:
            for push, echo in self._told():
                for place, value in places(echo):
                    self._by_place.setdefault(place, _Column()).add(value, push)
        agreeing = self._by_place.get((), _EMPTY).any
        differing, tells = 0, False
        for place, value in places(sent):
            column = self._by_place.get(place, _EMPTY)
            same = column.holding.get(value, 0)
            differing |= column.any & ~same
            if value not in _NOTHING:
                agreeing &= same
                tells = tells or not value.startswith(A_LIST)
        silent = self._all & ~(agreeing | differing)
        return Said(agreeing, silent) if tells else Said(0, agreeing | silent)

    @property
    def _all(self) -> int:
        return (1 << len(self._echoes)) - 1

    def _told(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        return ((1 << at, echo) for at, echo in enumerate(self._echoes) if echo)
