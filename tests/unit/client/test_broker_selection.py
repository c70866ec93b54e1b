"""Clients choose brokers by their weights."""

import random
from collections import Counter

from tidemill.client.broker_selection import in_drawn_order


def test_every_broker_is_there_and_the_heavy_ones_come_first_more_often() -> None:
    draw = random.Random(3)
    orders = [in_drawn_order({"a": 66, "b": 33, "c": 1}, draw) for _ in range(1_000)]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    first = Counter(order[0] for order in orders)
    assert 560 < first["a"] < 760
    assert 230 < first["b"] < 430
    assert in_drawn_order({}, draw) == []
