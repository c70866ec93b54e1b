"""Samples of the load: changes of counters since the last look."""

from tidemill.broker.load_meter import LoadMeter, ProcessUsage
from tidemill.broker.metrics import GRPC_CLIENTS, BrokerMetrics
from tidemill.model.metrics import Histogram


def test_a_sample_is_what_changed_since_the_last_one() -> None:
    metrics, delays, flushes = BrokerMetrics(), Histogram(), Histogram()
    meter = LoadMeter(metrics)
    cpu_s = 7.0
    meter.usage = lambda: ProcessUsage(cpu_s, delays, flushes, 0.5)
    metrics.api("kafka", "Produce").duration.add_equal(0.001, 1_000)
    delays.add(9.0)
    first = meter.sample(1.0)
    assert (first.requests_per_s, first.cpu_cores, first.loop_delay_ms, first.disk_used) == (0, 0, 0, 0.5)
    metrics.api("kafka", "Produce").duration.add_equal(0.001, 50)
    metrics.network(GRPC_CLIENTS).latency.add(0.004)
    for delay_s in (0.01, 0.03):
        delays.add(delay_s)
    flushes.add(0.002)
    cpu_s = 8.0
    second = meter.sample(2.0)
    assert second.requests_per_s == 25
    assert second.cpu_cores == 0.5
    assert round(second.loop_delay_ms, 6) == 20
    assert round(second.flush_ms, 6) == 2
    assert round(second.clients_ms, 6) == 4
    third = meter.sample(1.0)
    assert (third.requests_per_s, third.loop_delay_ms, third.flush_ms, third.clients_ms) == (0, 0, 0, 0)


def test_calls_that_wait_for_messages_are_no_queue() -> None:
    metrics = BrokerMetrics()
    metrics.in_flight["kafka"] = lambda: 12
    metrics.fetches_waiting = 10
    metrics.in_flight["grpc"] = lambda: 99
    metrics.api("grpc", "TimelineService/Work").in_flight = 70
    metrics.api("grpc", "BrokerService/Poll").in_flight = 20
    metrics.api("grpc", "TimelineService/Schedule").in_flight = 3
    assert LoadMeter(metrics).sample(1.0).queue == 5
