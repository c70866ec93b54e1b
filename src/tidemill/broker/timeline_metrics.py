"""Connects timelines to the broker: dead letters become records, and timeline statistics become metrics."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.topics import Topics
from tidemill.model.errors import KafkaError
from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, MetricReading
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.replication.leader_appends import LeaderAppends
from tidemill.timelines.consumer import TimelineConsumer
from tidemill.timelines.dead_letters import Append
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import TimelinesState
from tidemill.timelines.stats import TimelineStats


def dead_letter_writer(
    view: ClusterView, topics: Topics, appends: LeaderAppends, clock_ms: Callable[[], int]
) -> Append:
    """A function that appends dead letters to topics durably, and creates a topic that does not exist."""

    async def append(topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        record = NewRecord(key, value, tuple(headers), clock_ms())
        try:
            target = view.topic(topic) or await topics.create(topic)
            index = zlib.crc32(key) % len(target.partitions) if key is not None else 0
            await appends.append(TopicPartition(topic, index), build_batch([record]))
        except KafkaError as error:
            raise StoreUnavailable(f"dead letters cannot be appended to {topic!r}: {error}") from error

    return append


def timeline_readings(dispatcher: Dispatcher) -> Callable[[], Iterable[MetricReading]]:
    """The metrics of the timelines, read when they are requested."""

    def read() -> Iterator[MetricReading]:
        health = dispatcher.health()
        for state in TimelinesState:
            labels = (("state", state.value),)
            yield Gauge("tidemill_timelines_state", "State of the timelines.", float(health.state is state), labels)
        for target, drift_ms in (
            ("wall", health.clock_drift_ms),
            ("store", health.store_drift_ms),
            ("clients", health.clients_drift_ms),
        ):
            yield Gauge(
                "tidemill_timelines_drift_seconds", "Difference of a clock.", drift_ms / 1_000, (("target", target),)
            )
        for name, stats in sorted(dispatcher.stats.items()):
            yield from _of_timeline(name, stats, dispatcher.consumers(name))

    return read


def _of_timeline(name: str, stats: TimelineStats, consumers: Sequence[TimelineConsumer]) -> Iterator[MetricReading]:
    label = ("timeline", name)
    for operation, count in sorted(stats.messages.items()):
        labels = (label, ("op", operation))
        yield CounterReading("tidemill_timeline_messages", "Messages by operation.", count, labels)
    for reason, count in sorted(stats.errors.items()):
        labels = (label, ("reason", reason))
        yield CounterReading("tidemill_timeline_errors", "Rejected operations.", count, labels)
    yield CounterReading(
        "tidemill_timeline_leased_bytes", "Bytes of the bodies that were leased.", stats.leased_bytes, (label,)
    )
    yield Gauge("tidemill_timeline_consumers", "Connected consumers.", len(consumers), (label,))
    slowest_s = max((one.latency_us / 1_000_000 for one in consumers), default=0.0)
    yield Gauge(
        "tidemill_timeline_consumer_latency_max_seconds",
        "Largest network latency of a consumer.",
        slowest_s,
        (label,),
    )
    yield HistogramReading(
        "tidemill_timeline_lateness_seconds",
        "Time from due time to first delivery.",
        stats.lateness,
        (label,),
    )
    yield Gauge(
        "tidemill_timeline_lateness_max_seconds",
        "Largest lateness since the broker started.",
        stats.lateness.largest,
        (label,),
    )
    yield HistogramReading(
        "tidemill_timeline_timer_delay_seconds",
        "How late the timers of the delivery fired.",
        stats.wakeup,
        (label,),
    )
