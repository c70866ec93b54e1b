"""The load of a broker: averages, levels with hysteresis, bounded documents and bounded writes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.cluster.core.broker_load import (
    HALF_LIFE_S,
    LIMITS,
    LOAD_BYTES_MAX,
    PUBLISH_S,
    REPEAT_S,
    SLOW_MS,
    LoadAverage,
    LoadLevel,
    LoadReport,
    LoadSample,
    RoundTrips,
    decode_load,
    encode_load,
    is_slow,
    is_worth_writing,
    level_after,
)

VALUES = st.floats(0, 1e6, allow_nan=False)
SAMPLES = st.builds(LoadSample, *[VALUES] * len(LoadSample._fields))
NODES = st.integers(0, 2**31 - 1)
REPORTS = st.builds(
    LoadReport,
    st.sampled_from(LoadLevel),
    SAMPLES,
    st.dictionaries(NODES, VALUES, max_size=200),
    st.frozensets(NODES, max_size=200),
    st.frozensets(NODES, max_size=200),
    st.dictionaries(st.text(min_size=1, max_size=249), st.integers(1, 10_000), max_size=200),
)


def test_an_average_follows_with_its_half_life() -> None:
    load = LoadAverage()
    load.add(LoadSample(requests_per_s=100), 1)
    assert load.averages.requests_per_s == 100, "the first sample counts as it is"
    load.add(LoadSample(requests_per_s=0), HALF_LIFE_S)
    assert load.averages.requests_per_s == pytest.approx(50)
    for _ in range(10):
        load.add(LoadSample(), HALF_LIFE_S / 10)
    assert load.averages.requests_per_s == pytest.approx(25)


@pytest.mark.parametrize("name", ["queue", "loop_delay_ms", "cpu_cores", "flush_ms", "disk_used"])
def test_each_measurement_alone_overloads_a_broker(name: str) -> None:
    at_limit = LoadSample()._replace(**{name: getattr(LIMITS, name)})
    assert level_after(LoadLevel.NORMAL, at_limit) is LoadLevel.OVERLOADED
    half = LoadSample()._replace(**{name: getattr(LIMITS, name) / 2})
    assert level_after(LoadLevel.NORMAL, half) is (LoadLevel.NORMAL if name == "disk_used" else LoadLevel.BUSY)


def test_requests_and_far_clients_alone_are_no_load() -> None:
    assert level_after(LoadLevel.NORMAL, LoadSample(requests_per_s=1e9, clients_ms=1e6)) is LoadLevel.NORMAL


def test_a_level_does_not_flap() -> None:
    """A load that swings by a fifth around the limit changes the level once."""
    load, levels = LoadAverage(), []
    for second in range(600):
        swing = 1.2 if second // 30 % 2 else 0.8
        load.add(LoadSample(loop_delay_ms=LIMITS.loop_delay_ms * swing), 1)
        levels.append(load.level)
    changes = sum(now is not before for before, now in itertools.pairwise(levels))
    assert changes == 1
    assert levels[-1] is LoadLevel.OVERLOADED
    for _ in range(120):
        load.add(LoadSample(), 1)
    assert load.level is LoadLevel.NORMAL


def test_a_short_spike_changes_nothing() -> None:
    load = LoadAverage()
    for second in range(60):
        load.add(LoadSample(loop_delay_ms=2_000 if second == 30 else 1), 1)
        assert load.level is not LoadLevel.OVERLOADED


def test_a_peer_is_slow_until_it_is_clearly_faster() -> None:
    trips = RoundTrips()
    for _ in range(20):
        trips.add(2, SLOW_MS + 1)
    assert trips.slow == {2}
    for _ in range(20):
        trips.add(2, SLOW_MS - 10)
    assert trips.slow == {2}
    for _ in range(20):
        trips.add(2, 1)
    assert trips.slow == frozenset()
    trips.add(3, SLOW_MS)
    trips.keep([2])
    assert (set(trips.averages_ms), trips.slow) == ({2}, frozenset())


def test_a_broker_is_slow_when_most_others_say_so() -> None:
    finds = LoadReport(round_trips_ms={1: 400.0}, slow=frozenset({1}))
    fast = LoadReport(round_trips_ms={1: 1.0})
    assert is_slow(1, {2: finds, 3: finds, 4: fast})
    assert not is_slow(1, {2: finds, 3: fast, 4: LoadReport()})
    assert not is_slow(1, {1: finds}), "its own opinion does not count"


@given(REPORTS)
def test_a_document_is_small_and_is_read_back(report: LoadReport) -> None:
    document = encode_load(report)
    assert len(document) <= LOAD_BYTES_MAX
    read = decode_load(document)
    assert read is not None
    assert read.level is report.level
    assert read.averages == pytest.approx(report.averages, rel=0.01)
    assert read.missing <= report.missing
    assert set(read.producers.items()) <= set(report.producers.items())


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(lambda read: json.dumps(read).encode())
)
def test_text_that_cannot_be_read_is_no_load(document: bytes) -> None:
    assert decode_load(document) is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", '"x"', "[]", "1e999"])
def test_numbers_that_are_no_measurements_are_refused(value: str) -> None:
    document = encode_load(LoadReport()).replace(b'"queue":0.0', b'"queue":' + value.encode())
    assert decode_load(document) is None


@given(st.lists(SAMPLES, min_size=1, max_size=50), st.integers(1, 10))
def test_writes_are_bounded(samples: list[LoadSample], step_s: int) -> None:
    """However the load changes: at most one write in PUBLISH_S, and one in REPEAT_S when nothing changes."""
    written: LoadReport | None = None
    written_s, times = -REPEAT_S, []
    for second in range(0, 300, step_s):
        now = LoadReport(averages=samples[second // step_s % len(samples)])
        if is_worth_writing(written, now, second - written_s):
            written, written_s = now, second
            times.append(second)
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert all(PUBLISH_S <= gap <= REPEAT_S + step_s for gap in gaps)


def test_small_changes_are_not_written() -> None:
    before = LoadReport(averages=LoadSample(requests_per_s=1_000, loop_delay_ms=20))
    near = LoadReport(averages=LoadSample(requests_per_s=1_100, loop_delay_ms=22))
    far = LoadReport(averages=LoadSample(requests_per_s=2_000, loop_delay_ms=20))
    assert not is_worth_writing(before, near, 10)
    assert is_worth_writing(before, far, 10)
    assert is_worth_writing(before, before._replace(missing=frozenset({2})), 10)
    assert not is_worth_writing(before, far, PUBLISH_S - 1)
