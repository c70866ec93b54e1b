"""The traffic of each topic of this broker, for /metrics."""

from collections.abc import Awaitable, Callable, Iterator

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import CounterReading, MetricReading


def topic_readings(metrics: BrokerMetrics) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report what clients have written to the topics of this broker, and read from them."""

    async def snapshot(_: bool) -> Iterator[MetricReading]:
        return _readings(metrics)

    return snapshot


def _readings(metrics: BrokerMetrics) -> Iterator[MetricReading]:
    for name, traffic in sorted(metrics.topics.items()):
        labels = (("topic", name),)
        yield CounterReading("tidemill_topic_bytes_in", "Bytes of batches appended.", traffic.bytes_in, labels)
        yield CounterReading("tidemill_topic_records_in", "Records appended.", traffic.records_in, labels)
        yield CounterReading("tidemill_topic_bytes_out", "Bytes of batches sent.", traffic.bytes_out, labels)
