"""Replica lag of the followers of the partitions that this broker leads, for `cluster status` and /metrics.

A follower's lag in records is the number of records after its last fetch offset. Under steady load these records are in
flight. Its lag in time is the time since the follower last had every record. When that time exceeds
`replica.lag.time.max.ms`, the follower leaves the in-sync set. Both values are the maximum over all partitions of the
follower.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from tidemill.cluster.partition_states import States
from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.streams.core.insync import Lag
from tidemill.streams.partition import Partition


def worst_lags(partitions: Iterable[Partition]) -> dict[int, Lag]:
    """The maximum lag of each follower over these partitions."""
    return worst(partition.leader.lags for partition in partitions)


def worst(reports: Iterable[Mapping[int, Lag]]) -> dict[int, Lag]:
    """The maximum lag of each follower over several reports."""
    found: dict[int, Lag] = {}
    for lags in reports:
        for node, lag in lags.items():
            known = found.get(node, lag)
            found[node] = Lag(max(known.records, lag.records), max(known.ms, lag.ms))
    return found


def encode_lags(lags: Mapping[int, Lag]) -> str:
    """Encode as `2=0:0,3=17:40`: follower, records, milliseconds."""
    return ",".join(f"{node}={lag.records}:{lag.ms:.0f}" for node, lag in sorted(lags.items()))


def decode_lags(text: str) -> dict[int, Lag]:
    """Decode the output of `encode_lags`."""
    lags = {}
    for part in filter(None, text.split(",")):
        node, _, lag = part.partition("=")
        records, _, ms = lag.partition(":")
        lags[int(node)] = Lag(int(records), float(ms))
    return lags


def replica_readings(partitions: Iterable[Partition], states: States) -> Callable[[], Iterator[MetricReading]]:
    """The replication metrics that this broker reports on /metrics."""

    def read() -> Iterator[MetricReading]:
        short = below_minimum = 0
        for partition in partitions:
            term = partition.term
            if partition.leads and term is not None:
                short += len(term.isr) < len(term.replicas)
                below_minimum += len(term.isr) < partition.settings.min_insync_replicas
        yield Gauge(
            "tidemill_under_replicated_partitions", "Partitions led here with a replica that is not in sync.", short
        )
        yield Gauge(
            "tidemill_under_min_isr_partitions",
            "Partitions led here with fewer replicas in sync than min.insync.replicas; acks=all is refused.",
            below_minimum,
        )
        yield CounterReading(
            "tidemill_unclean_elections",
            "Unclean leader elections written by this broker; records may be lost.",
            states.unclean_elections,
        )
        for node, lag in sorted(worst_lags(partitions).items()):
            label = (("follower", str(node)),)
            yield Gauge(
                "tidemill_replica_lag_records", "Maximum number of records that a follower lacks.", lag.records, label
            )
            yield Gauge(
                "tidemill_replica_lag_seconds", "Maximum time since a follower had every record.", lag.ms / 1000, label
            )

    return read
