"""The offsets of each partition, which /metrics reports with `?detail=partition` only."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice

from tidemill.model.metrics import Gauge, MetricReading
from tidemill.streams.partition import Partition

PARTITIONS_MAX = 100_000
"""The most partitions that one scrape reports."""


def partition_offsets(partitions: Iterable[Partition]) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report the start and the end of the log of every partition that this broker carries."""

    async def snapshot(by_partition: bool) -> Iterator[MetricReading]:
        return _readings(islice(partitions, PARTITIONS_MAX) if by_partition else ())

    return snapshot


def _readings(shown: Iterable[Partition]) -> Iterator[MetricReading]:
    for partition in shown:
        labels = (("topic", partition.topic), ("partition", str(partition.index)))
        yield Gauge(
            "tidemill_partition_log_start_offset",
            "The first offset that may be read. Only with ?detail=partition.",
            partition.log_start_offset,
            labels,
        )
        yield Gauge(
            "tidemill_partition_log_end_offset",
            "The offset of the next record. Only with ?detail=partition.",
            partition.log_end_offset,
            labels,
        )
        yield Gauge(
            "tidemill_partition_high_watermark",
            "Consumers can read below this offset. Only with ?detail=partition.",
            partition.high_watermark,
            labels,
        )
        yield Gauge(
            "tidemill_partition_last_stable_offset",
            "Consumers of committed records can read below this offset. Only with ?detail=partition.",
            partition.last_stable_offset,
            labels,
        )
