"""Connections that have not authenticated are bounded, and a flood does not drop others."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.kafka.newcomers import Newcomers


def test_the_oldest_of_the_largest_crowd_is_dropped() -> None:
    newcomers: Newcomers[str] = Newcomers(4)
    assert [newcomers.add(name, "flood") for name in ("a", "b", "c")] == [None] * 3
    assert newcomers.add("honest", "home") is None
    assert newcomers.add("d", "flood") == "a"
    assert newcomers.add("other", "away") == "b"
    newcomers.remove("honest")
    newcomers.remove("honest")
    assert len(newcomers) == 3


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans())), st.integers(1, 10))
def test_there_are_never_too_many(arrivals: list[tuple[int, bool]], most: int) -> None:
    newcomers: Newcomers[int] = Newcomers(most)
    known: list[int] = []
    for number, (address, leaves) in enumerate(arrivals):
        dropped = newcomers.add(number, f"{address}")
        known = [each for each in (*known, number) if each != dropped]
        if leaves:
            newcomers.remove(known.pop(0))
        assert len(newcomers) == len(known) <= most
