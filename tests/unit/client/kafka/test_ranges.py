"""How much is asked for of a range."""

from tidemill.client.kafka.ranges import FETCH_BYTES_MIN, MARGIN, bytes_for

MIB = 1024 * 1024


def test_a_range_asks_for_about_what_it_has() -> None:
    assert bytes_for(10, 0, 0, 4 * MIB) < 2 * FETCH_BYTES_MIN  # nothing is known: a guess
    assert bytes_for(10_000_000, 0, 0, 4 * MIB) == 4 * MIB
    assert bytes_for(100, 1000, 5 * MIB, 4 * MIB) == int(FETCH_BYTES_MIN + 100 * 5 * MIB / 1000 * MARGIN)
    assert bytes_for(1000, 1000, 5 * MIB, 4 * MIB) == 4 * MIB
    assert bytes_for(5, 100, 0, 600) == 600
