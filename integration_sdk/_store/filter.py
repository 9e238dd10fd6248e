"""A Bloom filter: remembers in one MiB which strings it has seen, give or take."""

from attrs import define, field

_BITS = 23
_MASK = 2**_BITS - 1
_SHIFTS = (0, _BITS - 1, 64 - _BITS)


@define
class Filter:
    """Strings that were added.

    ``text in filter`` is False only if *text* was never added. If it was never added, it is True
    for one in 3,000 after 200,000 strings, and for one in 40 after a million.
    """

    _bits: bytearray = field(init=False, factory=lambda: bytearray(2**_BITS // 8), repr=False)

    def add(self, text: str) -> None:
        """Add *text*."""
        number = hash(text)
        for shift in _SHIFTS:
            place = number >> shift & _MASK
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, text: str) -> bool:
        number = hash(text)
        places = (number >> shift & _MASK for shift in _SHIFTS)
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in places)
