"""Where messages are: by id, by number, and dead letters by the number in their id."""

from collections import Counter

from tidemill.timelines.core.lease import dead_letter_id
from tidemill.timelines.replicated.core.placement import PARTITIONS_MAX, first_seq, partition_of_id, partition_of_seq


def test_ids_are_spread_over_all_partitions() -> None:
    counts = Counter(partition_of_id(f"message-{number}", 4) for number in range(4_000))
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 800


def test_numbers_begin_with_their_partition() -> None:
    for partition in (0, 1, PARTITIONS_MAX - 1):
        assert partition_of_seq(first_seq(partition) + 1, PARTITIONS_MAX) == partition
        assert first_seq(partition + 1) <= 2**53


def test_a_number_that_no_partition_has_given_is_looked_up_in_one_that_exists() -> None:
    assert 0 <= partition_of_seq(-5, 4) < 4
    assert 0 <= partition_of_seq(2**62, 4) < 4


def test_a_dead_letter_stays_in_the_partition_of_its_number() -> None:
    seq = first_seq(3) + 17
    once = dead_letter_id("orders", "m1", seq)
    assert partition_of_id(once, 4) == 3
    assert partition_of_id(dead_letter_id("dead", once, seq), 4) == 3
    assert partition_of_id(dead_letter_id("orders", "x" * 200, seq), 4) == 3


def test_an_id_that_only_looks_like_a_dead_letter_has_a_place() -> None:
    assert 0 <= partition_of_id("a@b." + "9" * 100, 4) < 4
