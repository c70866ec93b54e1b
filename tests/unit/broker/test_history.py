"""The history of a broker: rates from counters, latencies from histograms, and what is kept by topic."""

import asyncio

import pytest

from tidemill.broker.history import (
    SAMPLE_MS,
    SLOTS,
    TOPICS_SHOWN_MAX,
    BrokerHistory,
    HistorySeries,
    HistorySource,
    LatencyChange,
    quantile,
    request_source,
    traffic_source,
)
from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import Histogram


class Clock:
    """A clock that moves when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def world() -> tuple[Clock, BrokerMetrics, BrokerHistory]:
    clock, metrics = Clock(), BrokerMetrics()
    history = BrokerHistory(clock, clock)
    history.add(traffic_source(metrics))
    history.add(request_source(metrics))
    return clock, metrics, history


def step(clock: Clock, history: BrokerHistory, ms: int = SAMPLE_MS) -> None:
    clock.now_ms += ms
    history.sample()


def last(history: BrokerHistory, name: str, key: str = "", slots: int = 1) -> list[float | None]:
    return history.window([name], slots).values[name].get(key, [None] * slots)


def test_counters_become_rates() -> None:
    clock, metrics, history = world()
    metrics.topic("orders").produced(1_000, 10)
    metrics.topic("orders").fetched(500)
    metrics.topic("bills").produced(4_000, 40)
    step(clock, history)
    assert last(history, "records_in") == [10.0]
    assert last(history, "bytes_in") == [1_000.0]
    assert last(history, "bytes_out") == [100.0]
    assert last(history, "topic_records_in", "bills") == [8.0]
    step(clock, history)
    assert last(history, "records_in", slots=3) == [None, 10.0, 0.0]
    assert last(history, "topic_records_in", "bills", slots=3) == [None, 8.0, 0.0], "silence is zero, not a gap"


def test_the_time_between_samples_counts() -> None:
    clock, metrics, history = world()
    step(clock, history)
    metrics.topic("orders").produced(0, 100)
    step(clock, history, 4 * SAMPLE_MS)
    assert last(history, "records_in", slots=5) == [0.0, None, None, None, 5.0]


def test_a_topic_that_was_created_again_counts_from_zero() -> None:
    clock, metrics, history = world()
    metrics.topic("orders").produced(0, 1_000)
    step(clock, history)
    metrics.forget_topic("orders")
    metrics.topic("orders").produced(0, 5)
    step(clock, history)
    assert last(history, "topic_records_in", "orders", slots=2) == [200.0, 1.0]


def test_a_bounded_number_of_topics_has_rates() -> None:
    clock, metrics, history = world()
    for number in range(TOPICS_SHOWN_MAX + 50):
        metrics.topic(f"t{number:04}").produced(0, number + 1)
    step(clock, history)
    kept = history.window(["topic_records_in"], 1).values["topic_records_in"]
    assert len(kept) == TOPICS_SHOWN_MAX
    assert "t0000" not in kept
    assert f"t{TOPICS_SHOWN_MAX + 49:04}" in kept
    for _ in range(SLOTS + 1):
        step(clock, history)
    assert history.window(["topic_records_in"], 1).values["topic_records_in"] == {}


def test_requests_errors_connections_and_latencies() -> None:
    clock, metrics, history = world()
    produce = metrics.api("kafka", "Produce")
    for _ in range(99):
        produce.answered(0.0004)
    produce.answered(0.2)
    produce.failed("NotLeaderOrFollower", 5)
    metrics.connection_opened("kafka")
    step(clock, history)
    assert last(history, "requests") == [20.0]
    assert last(history, "errors") == [1.0]
    assert last(history, "connections") == [1.0]
    assert last(history, "produce_p50_s")[0] == pytest.approx(0.00025, rel=0.02)
    assert last(history, "produce_p99_s")[0] == pytest.approx(0.0005)
    assert last(history, "fetch_p99_s") == [None]
    step(clock, history)
    assert last(history, "produce_p99_s") == [None], "nothing was produced"


def test_chosen_keys_and_unknown_series() -> None:
    clock, metrics, history = world()
    metrics.topic("orders").produced(0, 10)
    metrics.topic("bills").produced(0, 10)
    step(clock, history)
    found = history.window(["topic_records_in", "no such series"], 1, keys=["bills", "unknown"]).values
    assert found == {"topic_records_in": {"bills": [2.0], "unknown": [0.0]}}


def test_a_part_of_the_broker_adds_its_own_series() -> None:
    clock, _, history = world()
    lags = {"shop": 5.0, "idle": 0.0}
    history.add(HistorySource((HistorySeries("lag", keys_max=10),), lambda _: {"lag": lags}))
    step(clock, history)
    assert history.window(["lag"], 1).values["lag"] == {"shop": [5.0]}


def test_latencies_are_those_since_the_last_look() -> None:
    histogram, change = Histogram(), LatencyChange()
    assert change.quantiles(histogram) is None
    histogram.add(9.0)
    assert change.quantiles(histogram) is not None
    for _ in range(100):
        histogram.add(0.0001)
    found = change.quantiles(histogram)
    assert found is not None
    assert found[1] < 0.001, "the slow one was before"


def test_a_quantile_is_interpolated_and_bounded() -> None:
    assert quantile([10, 0, 0], (1.0, 2.0), 0.5) == 0.5
    assert quantile([0, 10, 0], (1.0, 2.0), 0.5) == 1.5
    assert quantile([0, 0, 10], (1.0, 2.0), 0.5) == 2.0
    assert quantile([1, 0, 0], (1.0, 2.0), 1.0) == 1.0


@pytest.mark.event_loop("virtual")
async def test_samples_are_taken_in_the_slots_of_the_clock() -> None:
    loop = asyncio.get_running_loop()

    def clock_ms() -> int:
        return 1_700_000_003_210 + int(loop.time() * 1000)

    history = BrokerHistory(clock_ms, clock_ms)
    history.add(HistorySource((HistorySeries("ms"),), lambda elapsed_s: {"ms": {"": elapsed_s}}))
    running = asyncio.create_task(history.run())
    await asyncio.sleep(21)
    running.cancel()
    values = history.window(["ms"], 5).values["ms"][""]
    assert values[0] is None
    assert values[2:] == pytest.approx([5.0, 5.0, 5.0], abs=0.002)


def test_a_topic_outside_of_a_full_series_has_no_known_rate() -> None:
    clock, metrics, history = world()
    for number in range(TOPICS_SHOWN_MAX):
        metrics.topic(f"t{number:04}").produced(0, 1)
    step(clock, history)
    found = history.window(["topic_records_in"], 1, keys=["t0000", "another"]).values["topic_records_in"]
    assert found == {"t0000": [0.2], "another": [None]}
