"""The metrics of each topic. There can be thousands, so a thread makes the text from a copy of the numbers."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from tidemill.broker.metrics import OTHER_TOPICS, TOPICS_MAX, BrokerMetrics
from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.streams.partition import Partition

Traffic = tuple[str, int, int, int]
"""A topic, its bytes in, its records in, its bytes out."""


def topic_readings(
    telemetry: BrokerMetrics, partitions: Iterable[Partition]
) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report the traffic and the logs of the topics of this broker."""

    async def snapshot(_: bool) -> Iterator[MetricReading]:
        traffic = [(name, one.bytes_in, one.records_in, one.bytes_out) for name, one in telemetry.topics.items()]
        return _readings(traffic, *_logs(partitions))

    return snapshot


def _logs(partitions: Iterable[Partition]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The bytes and the number of partitions of each topic."""
    sizes: defaultdict[str, int] = defaultdict(int)
    counts: defaultdict[str, int] = defaultdict(int)
    for partition in partitions:
        topic = partition.topic if partition.topic in sizes or len(sizes) < TOPICS_MAX else OTHER_TOPICS
        sizes[topic] += partition.size_bytes
        counts[topic] += 1
    return sizes, counts


def _readings(
    traffic: Sequence[Traffic], sizes: Mapping[str, int], counts: Mapping[str, int]
) -> Iterator[MetricReading]:
    for name, bytes_in, records_in, bytes_out in sorted(traffic):
        labels = (("topic", name),)
        yield CounterReading("tidemill_topic_bytes_in", "Bytes of batches appended.", bytes_in, labels)
        yield CounterReading("tidemill_topic_records_in", "Records appended.", records_in, labels)
        yield CounterReading("tidemill_topic_bytes_out", "Bytes of batches sent.", bytes_out, labels)
    for name, size in sorted(sizes.items()):
        labels = (("topic", name),)
        yield Gauge("tidemill_log_bytes", "Size of a topic's log.", size, labels)
        yield Gauge("tidemill_partitions", "Partitions carried.", counts[name], labels)
