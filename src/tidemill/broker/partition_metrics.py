"""The offsets of each partition, which /metrics reports with `?detail=partition` only."""

from collections.abc import Awaitable, Callable, Iterable, Iterator

from tidemill.model.metrics import Gauge, MetricReading
from tidemill.streams.partition import Partition


def partition_offsets(partitions: Iterable[Partition]) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report the start and the end of the log of every partition that this broker carries."""

    async def snapshot(by_partition: bool) -> Iterator[MetricReading]:
        shown = partitions if by_partition else ()
        return _readings([_offsets(partition) for partition in shown])

    return snapshot


def _offsets(partition: Partition) -> tuple[str, int, int, int, int]:
    log_offsets = partition.log_start_offset, partition.log_end_offset, partition.high_watermark
    return (partition.topic, partition.index, *log_offsets)


def _readings(found: list[tuple[str, int, int, int, int]]) -> Iterator[MetricReading]:
    for topic, index, start, end, high_watermark in found:
        labels = (("topic", topic), ("partition", str(index)))
        yield Gauge(
            "tidemill_partition_log_start_offset",
            "The first offset that may be read. Only with ?detail=partition.",
            start,
            labels,
        )
        yield Gauge(
            "tidemill_partition_log_end_offset",
            "The offset of the next record. Only with ?detail=partition.",
            end,
            labels,
        )
        yield Gauge(
            "tidemill_partition_high_watermark",
            "Consumers can read below this offset. Only with ?detail=partition.",
            high_watermark,
            labels,
        )
