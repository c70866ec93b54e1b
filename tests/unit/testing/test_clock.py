import pytest

from tidemill.testing import VirtualClock


def test_a_virtual_clock_moves_when_advanced() -> None:
    clock = VirtualClock(1_000)
    assert (clock(), clock.advance(5), clock()) == (1_000, 1_005, 1_005)
    with pytest.raises(ValueError, match="only moves forward"):
        clock.advance(-1)
