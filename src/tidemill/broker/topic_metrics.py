"""The traffic of each topic of this broker, for /metrics."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from tidemill.broker.metrics import OTHER_TOPICS, BrokerMetrics, TopicTraffic
from tidemill.model.metrics import CounterReading, MetricReading

ERRORS_MAX = 10_000
"""The most errors that are reported with the name of their topic; further ones are counted together."""


def topic_readings(metrics: BrokerMetrics) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report what clients have written to the topics of this broker, and read from them."""

    async def snapshot(_: bool) -> Iterator[MetricReading]:
        return _readings(metrics)

    return snapshot


def _readings(metrics: BrokerMetrics) -> Iterator[MetricReading]:
    errors = _TopicErrors()
    for name, traffic in sorted(metrics.topics.items()):
        labels = (("topic", name),)
        yield CounterReading("tidemill_topic_bytes_in", "Bytes of batches appended.", traffic.bytes_in, labels)
        yield CounterReading("tidemill_topic_records_in", "Records appended.", traffic.records_in, labels)
        yield CounterReading("tidemill_topic_bytes_out", "Bytes of batches sent.", traffic.bytes_out, labels)
        yield CounterReading(
            "tidemill_topic_fetches", "Reads of a partition that returned records.", traffic.fetches, labels
        )
        errors.add(name, traffic)
    yield from errors.readings()


class _TopicErrors:
    """The errors of all topics, by name for a bounded number of them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, topic: str, traffic: TopicTraffic) -> None:
        for (operation, error), count in (traffic.errors or {}).items():
            named = topic if len(self._counts) < ERRORS_MAX else OTHER_TOPICS
            self._counts[named, operation, error] += count

    def readings(self) -> Iterator[MetricReading]:
        for (topic, operation, error), count in self._counts.items():
            yield CounterReading(
                "tidemill_topic_errors",
                "Batches that were rejected (produce), and reads of a partition that failed (fetch).",
                count,
                (("topic", topic), ("operation", operation), ("error", error)),
            )
