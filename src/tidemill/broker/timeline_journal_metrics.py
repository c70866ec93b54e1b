"""The metrics of the journal of replicated timelines: each replica on this broker, and its index.

The label is the number of the partition. Their number is that of the internal topic, so there are few.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, MetricReading
from tidemill.timelines.replicated.partition import TimelinePartition
from tidemill.timelines.replicated.partition_counts import DAMAGED, DIVERGED, TimelineReplica


def journal_readings(partitions: Callable[[], Sequence[TimelinePartition]]) -> Callable[[], Iterator[MetricReading]]:
    """The replicas that this broker has now."""

    def read() -> Iterator[MetricReading]:
        for each in partitions():
            state = each.state
            if state is not None:
                yield from _of_replica(state)

    return read


def move_readings(left: Callable[[], Mapping[str, int]]) -> Callable[[], Iterator[MetricReading]]:
    """The messages that still move from a file of this broker; in all timelines together."""

    def read() -> Iterator[MetricReading]:
        yield Gauge(
            "tidemill_timeline_messages_to_move",
            "Messages of this broker's timeline file that still move to the replicated timelines.",
            sum(left().values()),
        )

    return read


def _of_replica(state: TimelineReplica) -> Iterator[MetricReading]:
    labels = (("partition", str(state.partition)),)
    counts = state.counts
    yield Gauge(
        "tidemill_timeline_journal_bytes",
        "Size of the replica of a partition of the journal of timelines.",
        state.journal_bytes,
        labels,
    )
    yield Gauge(
        "tidemill_timeline_index_position",
        "Offset of the journal up to which the index of this broker has everything.",
        state.position,
        labels,
    )
    yield Gauge(
        "tidemill_timeline_index_lag_entries",
        "Committed entries of the journal that the index of this broker lacks.",
        state.lag,
        labels,
    )
    yield Gauge(
        "tidemill_timeline_index_serving",
        "1 if this broker leads the partition and its index serves calls.",
        float(state.is_serving),
        labels,
    )
    yield HistogramReading(
        "tidemill_timeline_journal_append_seconds",
        "Time until the entries of a change were durable.",
        counts.appends,
        labels,
    )
    for error, count in sorted(counts.append_failures.items()):
        yield CounterReading(
            "tidemill_timeline_journal_append_failures",
            "Changes of timelines that could not be written to the journal, or may not have been.",
            count,
            (("partition", str(state.partition)), ("error", error)),
        )
    yield CounterReading(
        "tidemill_timeline_index_failures",
        "How often an index could not follow the journal, and tried again.",
        counts.follow_failures,
        labels,
    )
    for reason in (DAMAGED, DIVERGED):
        yield CounterReading(
            "tidemill_timeline_index_rebuilds",
            "Indexes that were built again from the journal.",
            counts.rebuilds.get(reason, 0),
            (("partition", str(state.partition)), ("reason", reason)),
        )
    yield HistogramReading(
        "tidemill_timeline_journal_snapshot_seconds",
        "Time to write all messages of a partition to the end of its journal, and to trim what is before them.",
        counts.snapshots,
        labels,
    )
