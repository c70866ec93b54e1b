"""Orders of the demo: the same seed gives the same orders."""

import random
from datetime import UTC, datetime

from tidemill.cli.demo.orders import ITEMS, QUANTITY_MAX, draw

AT = datetime(2026, 11, 16, 18, 0, 0, 123_000, tzinfo=UTC)


def test_the_same_seed_gives_the_same_orders() -> None:
    def orders(seed: int) -> list[object]:
        choice = random.Random(seed)
        return [draw(choice, number, AT) for number in range(100)]

    assert orders(7) == orders(7)
    assert orders(7) != orders(8)


def test_an_order() -> None:
    order = draw(random.Random(1), 42, AT)
    assert order.id == 42
    assert order.at == "2026-11-16T18:00:00.123+00:00"
    assert order.item in ITEMS
    assert 1 <= order.quantity <= QUANTITY_MAX
    assert order.price > 0
