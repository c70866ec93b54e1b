"""The logs of this broker for /metrics: sizes by topic, leadership, and replicas that are behind.

There can be tens of thousands of partitions, so they are visited in turns.
"""

from collections.abc import Awaitable, Callable, Iterator

from tidemill.broker.loop_turns import LoopTurns
from tidemill.broker.metrics import OTHER_TOPICS, TOPICS_MAX
from tidemill.broker.partitions import Partitions
from tidemill.model.metrics import Gauge, MetricReading
from tidemill.replication.lag import worst
from tidemill.streams.core.insync import Lag
from tidemill.streams.partition import Partition


class TopicLogs:
    """The partitions of one topic that this broker carries."""

    __slots__ = ("led", "partitions", "segments", "size_bytes")

    def __init__(self) -> None:
        self.partitions = 0
        self.led = 0
        self.segments = 0
        self.size_bytes = 0


class LogSurvey:
    """What one visit of all partitions has found."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicLogs] = {}
        self.under_replicated = 0
        self.under_min_isr = 0
        self.lags: dict[int, Lag] = {}

    def visit(self, partition: Partition) -> None:
        """Add one partition."""
        logs = self._topic(partition.topic)
        logs.partitions += 1
        logs.led += partition.leads
        logs.segments += partition.segment_count
        logs.size_bytes += partition.size_bytes
        term = partition.term
        if term is not None and partition.leads:
            self.under_replicated += len(term.isr) < len(term.replicas)
            self.under_min_isr += len(term.isr) < partition.settings.min_insync_replicas
            if len(term.replicas) > 1:
                self.lags = worst((self.lags, partition.leader.lags))

    def _topic(self, name: str) -> TopicLogs:
        found = self.topics.get(name)
        if found is None:
            name = name if len(self.topics) < TOPICS_MAX else OTHER_TOPICS
            found = self.topics.setdefault(name, TopicLogs())
        return found


def log_readings(partitions: Partitions) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """Report the logs of this broker."""

    async def snapshot(_: bool) -> Iterator[MetricReading]:
        survey, turns = LogSurvey(), LoopTurns()
        for partition in partitions:
            survey.visit(partition)
            await turns.pause()
        return _readings(survey, len(partitions.broken()))

    return snapshot


def _readings(survey: LogSurvey, failed: int) -> Iterator[MetricReading]:
    yield Gauge(
        "tidemill_partitions_failed",
        "Partitions that cannot be used: their disk failed, or they could not be opened.",
        failed,
    )
    yield Gauge(
        "tidemill_under_replicated_partitions",
        "Partitions led here with a replica that is not in sync.",
        survey.under_replicated,
    )
    yield Gauge(
        "tidemill_under_min_isr_partitions",
        "Partitions led here with fewer replicas in sync than min.insync.replicas; acks=all is refused.",
        survey.under_min_isr,
    )
    for node, lag in sorted(survey.lags.items()):
        label = (("follower", str(node)),)
        yield Gauge(
            "tidemill_replica_lag_records", "Maximum number of records that a follower lacks.", lag.records, label
        )
        yield Gauge(
            "tidemill_replica_lag_seconds", "Maximum time since a follower had every record.", lag.ms / 1000, label
        )
    for name, logs in sorted(survey.topics.items()):
        labels = (("topic", name),)
        yield Gauge("tidemill_log_bytes", "Size of a topic's log.", logs.size_bytes, labels)
        yield Gauge("tidemill_log_segments", "Segments of a topic's log.", logs.segments, labels)
        yield Gauge("tidemill_partitions", "Partitions carried.", logs.partitions, labels)
        yield Gauge("tidemill_partitions_led", "Partitions that this broker leads.", logs.led, labels)
