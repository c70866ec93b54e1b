"""Quotas of buckets: even, and odd ones where they are needed or already are."""

import pytest

from tidemill.timelines.core.buckets import NO_OWNER, BucketRange, quotas, rebalance


@pytest.mark.parametrize(
    ("held", "least", "most"),
    [
        ({}, {}, "a"),
        ({"b": 2}, {}, "b"),
        ({"b": 2}, {"a": 1}, "b"),  # less than an even share needs nothing more
        ({"b": 2}, {"a": 3}, "a"),
        ({"a": 5, "b": 2}, {"b": 3}, "b"),
    ],
)
def test_an_odd_bucket_goes_where_it_is_needed_or_held(held: dict[str, int], least: dict[str, int], most: str) -> None:
    assert quotas(5, ["b", "a"], held, least) == {"a": 2, "b": 2, most: 3}


def test_large_pieces_go_to_the_owners_that_need_most() -> None:
    free = [BucketRange(0, 3, NO_OWNER), BucketRange(5, 14, NO_OWNER)]
    found = rebalance([*free, BucketRange(4, 4, "gap")], {"a": 4, "b": 10, "gap": 1})
    assert found == [BucketRange(0, 3, "a"), BucketRange(4, 4, "gap"), BucketRange(5, 14, "b")]


def test_the_order_of_the_owners_does_not_change_the_pieces() -> None:
    free = [BucketRange(0, 3, NO_OWNER)]
    expected = [BucketRange(0, 1, "a"), BucketRange(2, 3, "b")]
    assert rebalance(free, {"a": 2, "b": 2}) == rebalance(free, {"b": 2, "a": 2}) == expected
