"""Windows on which brokers agree: the same consumers and the same time give the same deal, whatever happened before."""

import random
from collections import Counter

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


class Coordination:
    """Several brokers, which hear of consumers and of the recorded deal when `tell` is called."""

    def __init__(self, brokers: int, buckets: int = BUCKETS) -> None:
        self.record: bytes | None = None
        self.writes = 0
        self.places: dict[str, ConsumerPlace] = {}
        self.buckets = buckets
        self._seen: dict[int, list[bytes | None]] = {}
        self.brokers = [self.broker() for _ in range(brokers)]

    def broker(self) -> SharedWindows:
        seen: list[bytes | None] = [None]

        def publish(record: bytes | None) -> None:
            if seen[0] == self.record:
                self.record, self.writes = record, self.writes + 1

        made = SharedWindows(
            WINDOW_MS, buckets=self.buckets, enrol=lambda _: None, withdraw=lambda _: None, publish=publish
        )
        self._seen[id(made)] = seen
        return made

    def tell(self, now_ms: int, *brokers: SharedWindows) -> None:
        for each in brokers or self.brokers:
            self._seen[id(each)][0] = self.record
            each.update(list(self.places.values()), now_ms, self.record)

    def settle(self, now_ms: int) -> SharedWindows:
        """All brokers hear of everything; one of them."""
        self.tell(now_ms)
        self.tell(now_ms)
        deals = [each.deal for each in self.brokers]
        assert all(deal == deals[0] for deal in deals), "brokers deal alike"
        assert all(each.prepare() == self.brokers[0].prepare() for each in self.brokers)
        return self.brokers[0]


def moved(before: list[str | None], after: list[str | None]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


def primaries(agreed: SharedWindows, buckets: int = BUCKETS) -> list[str | None]:
    return [agreed.first_candidate(bucket) for bucket in range(buckets)]


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


@pytest.mark.parametrize("racks", ["x", "xyz"])
def test_few_buckets_move_when_a_consumer_comes_or_goes(racks: str) -> None:
    """A consumer that leaves moves only its own buckets; one that joins takes an even share and moves nothing else."""
    rng = random.Random(11)
    world, now_ms, fresh_moves = Coordination(3, 4_096), 0, 0
    for number in range(4):
        world.places[f"c{number}"] = seat(DealtConsumer(f"c{number}", rng.choice(racks)), now_ms)
    for number in range(4, 124):
        now_ms += 2 * WINDOW_MS
        agreed = world.settle(now_ms)
        before = primaries(agreed, 4_096)
        count = len(world.places)
        leaves = count > 2 and (count >= 20 or rng.random() < 0.5)
        if leaves:
            del world.places[rng.choice(sorted(world.places))]
        else:
            world.places[f"c{number}"] = seat(DealtConsumer(f"c{number}", rng.choice(racks)), now_ms)
        now_ms += 2 * WINDOW_MS
        after = primaries(world.settle(now_ms), 4_096)
        sizes = Counter(after)
        assert sizes.keys() == world.places.keys()
        assert max(sizes.values()) - min(sizes.values()) <= 1
        most = -(-4_096 // (count if leaves else count + 1)) + count
        deal = world.brokers[0].deal
        assert deal is not None
        if moved(before, after) > most:
            fresh_moves += 1  # the ranges had become too small, and were dealt afresh
            assert len(deal.primary.pieces) == len(world.places)
        racks_now = {place.member.rack: 0 for place in world.places.values()}
        rack_of = {place.member.id: place.member.rack for place in world.places.values()}
        for bucket in rng.sample(range(4_096), 64):
            names = deal.candidates(bucket)
            assert sorted({rack_of[name] for name in names}) == sorted(racks_now), "every rack has a candidate"
    assert fresh_moves <= 3


def test_a_broker_that_starts_later_deals_from_the_record() -> None:
    rng = random.Random(5)
    world, now_ms = Coordination(2), 0
    for step in range(60):
        now_ms += rng.randrange(200, 2 * WINDOW_MS)
        name = f"c{rng.randrange(12)}"
        if world.places.pop(name, None) is None:
            world.places[name] = seat(DealtConsumer(name, rng.choice("xyz")), now_ms)
        old = world.settle(now_ms)
        late = world.broker()
        world.tell(now_ms, late)
        assert late.deal == old.deal, step
        assert late.prepare() == old.prepare()


def test_a_broker_prepares_the_deal_of_the_next_window() -> None:
    """So the messages that are fetched before the window begins are those that are needed in it."""
    world = Coordination(2)
    world.places = {each.id: seat(each) for each in (A, B, C)}
    world.settle(WINDOW_MS)
    world.places[D.id] = seat(D, WINDOW_MS + 1)
    agreed = world.settle(WINDOW_MS + 2)
    prepared = agreed.prepare()
    assert prepared != agreed.deal
    agreed.turn(2 * WINDOW_MS)
    assert agreed.deal == prepared


def test_one_record_is_written_for_each_change() -> None:
    world = Coordination(3)
    world.places = {each.id: seat(each) for each in (A, B)}
    for now_ms in range(WINDOW_MS, 10 * WINDOW_MS, 1_000):
        world.settle(now_ms)
    assert world.writes == 1
    del world.places["a1"]
    world.settle(10 * WINDOW_MS)
    assert world.writes == 2
    world.places.clear()
    world.settle(11 * WINDOW_MS)
    assert world.record is None


@pytest.mark.parametrize(
    "record",
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"\xff",
            b"null",
            b'{"members":[],"pieces":[]}',
            b'{"members":[["a1","x"]],"pieces":[256]}',
        ),
        *(b'{"members":[["a1","x"]],"pieces":[255,0]}', b'{"members":[["a1","x"]],"pieces":[256,1]}'),
        *(b'{"members":[["a1","x"]],"pieces":[0,0,256,0]}', b'{"members":[["a1","x"]],"pieces":[256,-1]}'),
        b'{"members":[["a1"]],"pieces":[256,0]}',
    ],
)
def test_a_record_that_is_no_deal_is_as_none(record: bytes) -> None:
    with_record, without = windows(), windows()
    with_record.update([seat(A), seat(B)], WINDOW_MS, record)
    without.update([seat(A), seat(B)], WINDOW_MS)
    assert with_record.deal == without.deal


def test_a_deal_that_is_too_large_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.timelines.core.deal_record.RECORD_BYTES_MAX", 10)
    world = Coordination(2)
    world.places = {each.id: seat(each) for each in (A, B)}
    world.settle(WINDOW_MS)
    assert world.record is None
