"""The ring of samples: what is kept, for how long, and for how many keys."""

import random

import pytest

from tidemill.broker.sample_ring import SampleRing


def test_values_are_kept_for_their_slots() -> None:
    ring = SampleRing(4)
    for slot in range(10, 16):
        ring.put(slot, {"": float(slot)})
    assert ring.values("", 15, 4) == [12, 13, 14, 15]
    assert ring.values("", 17, 4) == [14, 15, None, None]
    assert ring.values("", 12, 2) == [None, 12], "slot 11 has been overwritten"


def test_slots_without_a_value_are_gaps() -> None:
    ring = SampleRing(5)
    ring.put(1, {"": 1.0})
    ring.put(4, {"": 4.0})
    ring.put(7, {"": 7.0})
    assert ring.values("", 7, 5) == [None, 4, None, None, 7]


def test_a_value_of_the_round_before_does_not_return() -> None:
    ring = SampleRing(3)
    for slot in (1, 2, 3):
        ring.put(slot, {"": float(slot)})
    ring.put(9, {"": 9.0})
    assert ring.values("", 9, 3) == [None, None, 9]


def test_a_clock_that_is_set_back_starts_again() -> None:
    ring = SampleRing(3)
    for slot in (100, 101, 102):
        ring.put(slot, {"": float(slot)})
    ring.put(50, {"": 50.0})
    assert ring.values("", 50, 3) == [None, None, 50]
    assert ring.values("", 102, 3) == [None, None, None]


def test_a_repeated_slot_has_its_last_value() -> None:
    ring = SampleRing(3)
    ring.put(1, {"": 1.0})
    ring.put(1, {"": 2.0})
    assert ring.values("", 1, 1) == [2]


def test_too_many_keys_drop_the_one_that_is_silent_for_the_longest_time() -> None:
    ring = SampleRing(10, keys_max=2)
    ring.put(1, {"old": 1.0})
    ring.put(2, {"busy": 1.0})
    ring.put(3, {"new": 1.0})
    assert ring.keys == ["busy", "new"]
    ring.put(4, {"a": 1.0, "b": 3.0, "c": 2.0})
    assert ring.keys == ["b", "c"], "the largest count"


def test_silent_keys_are_forgotten() -> None:
    ring = SampleRing(10, keys_max=5)
    ring.put(1, {"a": 1.0, "b": 1.0})
    ring.put(2, {"b": 1.0})
    ring.forget(2)
    assert ring.keys == ["b"]
    assert ring.values("a", 2, 2) == [None, None]


@pytest.mark.parametrize("_", range(20))
def test_the_ring_agrees_with_a_dictionary(_: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    slots = chance.randint(1, 8)
    ring, known = SampleRing(slots, keys_max=3), dict[tuple[str, int], float]()
    slot = 0
    for _step in range(100):
        slot += chance.choice([0, 1, 1, 2, 20])
        values = {key: chance.random() for key in chance.sample("abc", chance.randint(0, 3))}
        ring.put(slot, values)
        known |= {(key, slot): value for key, value in values.items()}
        newest = {key: max((at for name, at in known if name == key), default=None) for key in "abc"}
        for key in "abc":
            last = newest[key]
            expected = [
                known.get((key, at)) if last is not None and at > last - slots else None
                for at in range(slot - slots + 1, slot + 1)
            ]
            assert ring.values(key, slot, slots) == expected
