"""Windows on which brokers agree: the same consumers and the same time give the same deal, whatever happened before."""

import random

import pytest

from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.shared_windows import SETTLE_MS, ConsumerPlace, SharedWindows, covers, merge
from tidemill.timelines.core.timeline import DealerKind

WINDOW_MS = 10_000
BUCKETS = 256
A, B, C, D = (DealtConsumer(f"{name}1", rack) for name, rack in zip("abcd", "xyxy", strict=True))


def seat(member: DealtConsumer, since_ms: int = 0, *, here: bool = True) -> ConsumerPlace:
    return ConsumerPlace(member, since_ms, here)


def windows(dealer: DealerKind = DealerKind.RACKS) -> SharedWindows:
    return SharedWindows(
        WINDOW_MS, dealer=dealer, buckets=BUCKETS, enrol=lambda _member: None, withdraw=lambda _name: None
    )


def primaries(agreed: SharedWindows) -> list[str | None]:
    return [agreed.first_candidate(bucket) for bucket in range(BUCKETS)]


@pytest.mark.parametrize("dealer", list(DealerKind))
def test_a_broker_that_came_late_deals_as_the_others_do(dealer: DealerKind) -> None:
    rng = random.Random(7)
    old, seats = windows(dealer), dict[str, ConsumerPlace]()
    for now_ms in range(0, 300_000, 700):
        member = DealtConsumer(f"c{rng.randrange(12)}", rng.choice("xyz"))
        if seats.pop(member.id, None) is None:
            seats[member.id] = seat(member, now_ms)
        old.update(rng.sample(sorted(seats.values()), len(seats)), now_ms)
        fresh = windows(dealer)
        fresh.update(seats.values(), now_ms)
        assert primaries(fresh) == primaries(old)
        assert fresh.prepare() == old.prepare()
        assert [fresh.candidates(bucket) for bucket in range(BUCKETS)] == list(map(old.candidates, range(BUCKETS)))


def test_the_brokers_buckets_are_disjoint_and_cover_all() -> None:
    agreed = windows()
    agreed.update([seat(each) for each in (A, B, C, D)], WINDOW_MS)
    here, there = agreed.own(["a1", "b1"]), agreed.own(["c1", "d1"])
    assert all(covers(here, bucket) != covers(there, bucket) for bucket in range(BUCKETS))
    assert agreed.own([]) == ()
    assert agreed.own(["a1", "b1", "c1", "d1"]) == ((0, BUCKETS - 1),)


def test_a_new_consumer_works_from_the_next_window_that_every_broker_knows() -> None:
    agreed = windows()
    agreed.update([seat(A), seat(B, 12_000), seat(C, 20_000 - SETTLE_MS + 1)], 13_000)
    assert set(primaries(agreed)) == {"a1"}
    assert covers(agreed.own(["b1"]), 200) != covers(agreed.own(["b1"]), 0), "its next buckets are brought before"
    assert agreed.turn(20_000)
    assert set(primaries(agreed)) == {"a1", "b1"}
    assert agreed.turn(30_000)
    assert set(primaries(agreed)) == {"a1", "b1", "c1"}
    assert not agreed.turn(40_000)


def test_without_working_consumers_all_connected_ones_work_at_once() -> None:
    agreed = windows()
    agreed.update([], 10_000)
    assert primaries(agreed) == [None] * BUCKETS
    agreed.update([seat(A, 12_000), seat(B, 12_000)], 12_000)
    assert set(primaries(agreed)) == {"a1", "b1"}


def test_the_buckets_of_a_lost_consumer_are_others_at_once() -> None:
    agreed = windows()
    agreed.update([seat(each) for each in (A, B, C)], 12_000)
    agreed.update([seat(each) for each in (A, C)], 13_000)
    assert set(primaries(agreed)) == {"a1", "c1"}
    agreed.leave("a1", 14_000)  # one that was here: the broker does not wait for the news
    assert set(primaries(agreed)) == {"c1"}
    assert not agreed.others("c1")


def test_every_bucket_of_another_rack_is_backed_up() -> None:
    agreed = windows()
    agreed.update([seat(A), seat(B)], 10_000)
    assert agreed.backed_up(["a1"]) == agreed.own(["b1"])
    assert agreed.backed_up(["b1"]) == agreed.own(["a1"])


def test_ranges_are_merged() -> None:
    assert merge([(5, 9), (0, 2), (3, 3), (8, 12), (20, 21)]) == ((0, 3), (5, 12), (20, 21))
