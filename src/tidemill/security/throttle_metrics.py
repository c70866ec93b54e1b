"""The metrics of quotas. They have no labels with names of clients, so their number is fixed."""

from collections.abc import Callable, Iterable, Iterator

from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.security.core.failing_producers import FailingProducers
from tidemill.security.core.quotas import CLIENT_KINDS
from tidemill.security.core.throttle import Throttle, ThrottleCount


def throttle_readings(throttle: Throttle, failing: FailingProducers) -> Callable[[], Iterable[MetricReading]]:
    """How many responses let their clients wait, and for how long in all."""

    def read() -> Iterator[MetricReading]:
        for kind in CLIENT_KINDS:
            counted = throttle.counts.get(kind, ThrottleCount())
            labels = (("quota", kind.value),)
            yield CounterReading("tidemill_throttled_responses", "Responses above a quota.", counted.responses, labels)
            yield CounterReading(
                "tidemill_throttle_seconds", "Time that clients above a quota wait.", counted.seconds, labels
            )
        yield Gauge("tidemill_quota_clients", "Clients whose use is measured for a quota.", throttle.sensors())
        yield CounterReading(
            "tidemill_failing_producer_responses",
            "Responses to producers whose requests mostly fail.",
            failing.throttled,
        )

    return read
