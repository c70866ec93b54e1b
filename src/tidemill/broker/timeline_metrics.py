"""Connects timelines to the broker: dead letters become records, and timeline statistics become metrics."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.topics import Topics
from tidemill.model.errors import KafkaError
from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, MetricReading
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.replication.leader_appends import LeaderAppends
from tidemill.timelines.core.circuit import CircuitState
from tidemill.timelines.dead_letters import Append
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import TimelinesState
from tidemill.timelines.stats import (
    COMMANDS,
    LEASE_OPERATIONS,
    MESSAGE_OPERATIONS,
    OTHER_TIMELINES,
    TimelineCounts,
    TimelineStats,
)


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
    """The metrics of the timelines, read when they are requested.

    Their label is `timeline`, not `topic`: a topic and a timeline of one name may exist, and are different things.
    """

    def read() -> Iterator[MetricReading]:
        health = dispatcher.health()
        for state in TimelinesState:
            labels = (("state", state.value),)
            yield Gauge("tidemill_timelines_state", "State of the timelines.", float(health.state is state), labels)
        yield from _commands(dispatcher.stats)
        for name in dispatcher.stats.names():
            stats = dispatcher.stats.get(name)
            if stats is not None:  # it may be deleted while the readings are read
                yield from list(_of_timeline(name, stats))
        yield from _consumers(dispatcher)
        yield from _circuits(dispatcher)

    return read


def _circuits(dispatcher: Dispatcher) -> Iterator[MetricReading]:
    """Whether the messages of each timeline that is counted by name are pushed."""
    for name in dispatcher.stats.names():
        now = dispatcher.circuit_state(name)
        for state in CircuitState:
            labels = ("timeline", name), ("state", state.value)
            yield Gauge(
                "tidemill_timeline_delivery_state",
                "Whether messages are pushed: stopped and probing mean that most consumers fail.",
                int(state is now),
                labels,
            )


def _commands(counts: TimelineCounts) -> Iterator[MetricReading]:
    for operation in COMMANDS:
        count = counts.commands[operation]
        yield CounterReading("tidemill_timeline_commands", "Commands about timelines.", count, (("op", operation),))
    for (operation, reason), count in sorted(counts.command_errors.items()):
        labels = ("op", operation), ("reason", reason)
        yield CounterReading("tidemill_timeline_command_errors", "Rejected commands.", count, labels)


def _of_timeline(name: str, stats: TimelineStats) -> Iterator[MetricReading]:
    label = ("timeline", name)
    yield from _operations(name, stats)
    yield CounterReading(
        "tidemill_timeline_leased_bytes", "Bytes of the bodies that were leased.", stats.leased_bytes, (label,)
    )
    yield HistogramReading(
        "tidemill_timeline_delivery_attempts", "The number of the attempt that a lease was.", stats.attempts, (label,)
    )
    yield CounterReading(
        "tidemill_timeline_delivery_stops",
        "How often pushes were stopped because most consumers failed.",
        stats.stops,
        (label,),
    )
    yield CounterReading(
        "tidemill_timeline_past_due_messages",
        "Messages that were due more than a second before they were scheduled or moved.",
        stats.past_due,
        (label,),
    )
    yield HistogramReading(
        "tidemill_timeline_lateness_seconds",
        "Time from due time to first delivery, without past-due messages.",
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


def _operations(name: str, stats: TimelineStats) -> Iterator[MetricReading]:
    label = ("timeline", name)
    for operation in MESSAGE_OPERATIONS:
        labels = label, ("op", operation)
        yield CounterReading(
            "tidemill_timeline_messages",
            "Messages by operation; a duplicate has the id of a message that exists.",
            stats.messages[operation],
            labels,
        )
    for operation in LEASE_OPERATIONS:
        labels = label, ("op", operation)
        yield CounterReading(
            "tidemill_timeline_leases",
            "Leases by operation; one expires when no consumer settles it in time.",
            stats.leases[operation],
            labels,
        )
    for (operation, reason), count in sorted(stats.errors.items()):
        yield CounterReading(
            "tidemill_timeline_errors",
            "Operations on messages and leases that were rejected.",
            count,
            (label, ("op", operation), ("reason", reason)),
        )


def _consumers(dispatcher: Dispatcher) -> Iterator[MetricReading]:
    """The consumers of each timeline that is counted by name, and of the others together."""
    counts: Counter[str] = Counter(dict.fromkeys(dispatcher.stats.names(), 0))
    slowest_us: dict[str, int] = {}
    for name, count in dispatcher.served().items():
        label = name if name in counts else OTHER_TIMELINES
        counts[label] += count
        slowest_us[label] = max(slowest_us.get(label, 0), *(one.latency_us for one in dispatcher.consumers(name)))
    for name, count in sorted(counts.items()):
        slowest_s = slowest_us.get(name, 0) / 1_000_000
        labels = (("timeline", name),)
        yield Gauge("tidemill_timeline_consumers", "Connected consumers.", count, labels)
        yield Gauge(
            "tidemill_timeline_consumer_latency_max_seconds",
            "Largest network latency of a consumer.",
            slowest_s,
            labels,
        )
