import zlib
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.client.parallel.metadata import MARK, METADATA_BYTES_MAX, UNPACKED_BYTES_MAX, decode, encode
from tidemill.client.parallel.offsets import CompletedRun, PartitionTracking, SequenceTracking, Skipping, Tracking
from tidemill.model.topics import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
KINDS: list[type[Tracking]] = [PartitionTracking, SequenceTracking]


@pytest.fixture(params=KINDS)
def tracking(request: pytest.FixtureRequest) -> Tracking:
    made: Tracking = request.param()
    return made


def test_a_gap_holds_the_commit_back(tracking: Tracking) -> None:
    for offset in range(6):
        tracking.received(P0, offset)
    for offset in (0, 2, 4, 5):
        tracking.completed(P0, offset)
    assert tracking.committable() == {P0: 1}
    assert tracking.beyond(P0) == [CompletedRun(2, 2), CompletedRun(4, 5)]
    tracking.completed(P0, 1)
    assert tracking.committable() == {P0: 3}
    tracking.completed(P0, 3)
    assert tracking.committable() == {P0: 6}
    assert tracking.beyond(P0) == []


def arrive(tracking: Tracking) -> None:
    for place, offset in ((P0, 100), (P0, 101), (P1, 50), (P0, 102), (P1, 51)):
        tracking.received(place, offset)
    for place, offset in ((P0, 100), (P0, 101), (P0, 102), (P1, 51)):
        tracking.completed(place, offset)


def test_a_sequence_has_one_gap_for_all() -> None:
    """The example of the first design: the gap at p1:50 holds p0:102 back too."""
    tracking = SequenceTracking()
    arrive(tracking)
    assert tracking.committable() == {P0: 102, P1: 50}
    assert tracking.beyond(P0) == [CompletedRun(102, 102)]
    tracking.completed(P1, 50)
    assert tracking.committable() == {P0: 103, P1: 52}


def test_a_partition_that_is_lost_holds_no_other_back() -> None:
    tracking = SequenceTracking()
    arrive(tracking)
    tracking.forget(P1)
    assert tracking.committable() == {P0: 103}


def test_partitions_do_not_wait_for_each_other() -> None:
    tracking = PartitionTracking()
    arrive(tracking)
    assert tracking.committable() == {P0: 103, P1: 50}
    assert tracking.beyond(P1) == [CompletedRun(51, 51)]


def test_offsets_that_never_came_are_not_a_gap(tracking: Tracking) -> None:
    for offset in (3, 9, 40):
        tracking.received(P0, offset)
    tracking.completed(P0, 3)
    tracking.completed(P0, 40)
    assert tracking.committable() in ({P0: 9}, {P0: 4})
    tracking.completed(P0, 9)
    assert tracking.committable() == {P0: 41}


def test_a_second_completion_and_a_lost_partition_change_nothing(tracking: Tracking) -> None:
    tracking.received(P0, 0)
    tracking.received(P1, 7)
    tracking.completed(P0, 0)
    tracking.completed(P0, 0)
    tracking.forget(P1)
    tracking.completed(P1, 7)
    assert tracking.committable() == {P0: 1}
    assert tracking.pending(P1) == 0


def test_a_partition_assigned_again_starts_without_its_old_offsets(tracking: Tracking) -> None:
    """Another member continued to offset 50 meanwhile; the gap of the other partition stays all the time."""
    tracking.received(P1, 7)
    tracking.received(P0, 0)
    tracking.completed(P0, 0)
    tracking.forget(P0)
    tracking.received(P0, 50)
    tracking.completed(P1, 7)
    assert tracking.committable() == {P0: 50, P1: 8}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_never_past_a_gap_and_always_to_the_end(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    arrivals = data.draw(st.lists(st.sampled_from([P0, P1]), min_size=1, max_size=60))
    order = data.draw(st.permutations(range(len(arrivals))))
    tracking: Tracking = kind()
    offsets: list[tuple[TopicPartition, int]] = []
    counts = {P0: 0, P1: 0}
    for place in arrivals:
        offsets.append((place, counts[place]))
        tracking.received(place, counts[place])
        counts[place] += 1
    done: set[tuple[TopicPartition, int]] = set()
    before: dict[TopicPartition, int] = {}
    for index in order:
        tracking.completed(*offsets[index])
        done.add(offsets[index])
        for place, offset in tracking.committable().items():
            assert all((place, each) in done for each in range(offset))
            assert offset >= before.get(place, 0)
            covered = {(place, each) for run in tracking.beyond(place) for each in range(run.first, run.last + 1)}
            assert covered == {each for each in done if each[0] == place and each[1] >= offset}
        before = tracking.committable()
    assert tracking.committable() == {place: count for place, count in counts.items() if count}


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[CompletedRun]]:
    committed = place = draw(st.integers(0, 2**40))
    found = []
    for _ in range(draw(st.integers(0, 40))):
        first = place + draw(st.integers(1, 1_000))
        last = first + draw(st.integers(0, 100_000))
        found.append(CompletedRun(first, last))
        place = last + 1
    return committed, found


@settings(max_examples=100, deadline=None)
@given(runs())
def test_metadata_round_trip(example: tuple[int, list[CompletedRun]]) -> None:
    committed, found = example
    assert decode(committed, encode(committed, found)) == found


def test_metadata_that_does_not_fit_leaves_out_the_farthest() -> None:
    many = [CompletedRun(place * 7919, place * 7919 + place * place % 4_001) for place in range(1, 20_000)]
    text = encode(0, many)
    assert 0 < len(text) <= METADATA_BYTES_MAX
    kept = decode(0, text)
    assert kept
    assert kept == many[: len(kept)]
    assert encode(0, many, limit=10) == ""


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.none(), st.text(max_size=50), st.binary(max_size=60).map(lambda raw: "tm1:" + raw.hex())))
def test_foreign_metadata_says_nothing(text: str | None) -> None:
    assert isinstance(decode(5, text), list)


@pytest.mark.parametrize(("runs", "used"), [(UNPACKED_BYTES_MAX // 2, True), (UNPACKED_BYTES_MAX // 2 + 1, False)])
def test_metadata_unpacks_up_to_a_limit(runs: int, used: bool) -> None:
    text = MARK + b64encode(zlib.compress(b"\x01\x01" * runs, 9)).decode()
    assert bool(decode(0, text)) is used


def test_metadata_that_ends_within_a_run_counts_up_to_there() -> None:
    packed = b64encode(zlib.compress(bytes([2, 3, 4]))).decode()
    assert decode(5, MARK + packed) == [CompletedRun(7, 9)]


def test_skipping() -> None:
    skipping = Skipping([CompletedRun(4, 5), CompletedRun(9, 9)])
    assert [offset for offset in range(12) if skipping.skips(offset)] == [4, 5, 9]
    assert not skipping


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=40), st.integers(0, 3))
def test_metadata_may_be_as_long_as_the_limit(gaps: list[tuple[int, int]], less: int) -> None:
    runs, place = [], 0
    for waiting, complete in gaps:
        runs.append(CompletedRun(place + waiting, place + waiting + complete - 1))
        place += waiting + complete
    whole = encode(0, runs)
    assert decode(0, whole) == runs
    limited = encode(0, runs, limit=len(whole) - less)
    assert len(limited) <= len(whole) - less
    assert decode(0, limited) == (runs if less == 0 else runs[: len(decode(0, limited))])
    assert limited == whole if less == 0 else limited != whole
