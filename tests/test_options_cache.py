"""What `Cache` promises."""

from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._cache import Cache


def test_value_is_good_for_its_time_to_live() -> None:
    """A value is given until its time is up, and not at that moment."""
    cache: Cache[str, int] = Cache(60)
    cache.put("a", 1, now=100)

    assert cache.get("a", now=159.9) == 1
    assert cache.get("a", now=160) is None
    assert len(cache) == 0


def test_newer_value_takes_the_place_of_the_older() -> None:
    """Putting again replaces the value and starts its time anew."""
    cache: Cache[str, int] = Cache(60)
    cache.put("a", 1, now=0)
    cache.put("a", 2, now=50)

    assert cache.get("a", now=100) == 2


def test_forgotten_value_is_gone() -> None:
    """An explicit refresh forgets; forgetting what is not there is no error."""
    cache: Cache[str, int] = Cache(60)
    cache.put("a", 1, now=0)
    cache.forget("a")
    cache.forget("a")

    assert cache.get("a", now=0) is None


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_cache_holds_the_newest_up_to_its_limit(keys: list[int], limit: int) -> None:
    """However many values are put, the last *limit* different keys are held and no more."""
    cache: Cache[int, int] = Cache(60, limit=limit)
    for now, key in enumerate(keys):
        cache.put(key, key, now=now / 1000)

    newest = list(dict.fromkeys(reversed(keys)))[:limit]
    assert len(cache) == len(newest)
    assert [cache.get(key, now=1) for key in newest] == newest
