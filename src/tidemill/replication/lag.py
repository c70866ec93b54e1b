"""How far the followers of what this broker leads are behind: for operators, in `cluster status` and /metrics.

A follower's lag in records is what it has not asked behind yet; under steady load that is what is on its way. Its lag
in time says since when it has not had everything: when it passes `replica.lag.time.max.ms` the follower leaves the
in-sync set. Both are the worst of all partitions, by follower.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from tidemill.cluster.partition_states import States
from tidemill.model.metrics import Gauge
from tidemill.streams.core.insync import Lag
from tidemill.streams.partition import Partition


def worst_lags(partitions: Iterable[Partition]) -> dict[int, Lag]:
    """The worst of each follower of these partitions."""
    return worst(partition.lags for partition in partitions)


def worst(told: Iterable[Mapping[int, Lag]]) -> dict[int, Lag]:
    """The worst of each follower that several tell of."""
    found: dict[int, Lag] = {}
    for lags in told:
        for node, lag in lags.items():
            known = found.get(node, lag)
            found[node] = Lag(max(known.records, lag.records), max(known.ms, lag.ms))
    return found


def encode_lags(lags: Mapping[int, Lag]) -> str:
    """`2=0:0,3=17:40`: follower, records, milliseconds."""
    return ",".join(f"{node}={lag.records}:{lag.ms:.0f}" for node, lag in sorted(lags.items()))


def decode_lags(text: str) -> dict[int, Lag]:
    """What `encode_lags` wrote."""
    lags = {}
    for part in filter(None, text.split(",")):
        node, _, lag = part.partition("=")
        records, _, ms = lag.partition(":")
        lags[int(node)] = Lag(int(records), float(ms))
    return lags


def gauges(partitions: Iterable[Partition], states: States) -> Callable[[], Iterator[Gauge]]:
    """What /metrics tells of replication on this broker."""

    def told() -> Iterator[Gauge]:
        short = 0
        for partition in partitions:
            term = partition.term
            short += partition.leads and term is not None and len(term.isr) < len(term.replicas)
        yield Gauge("tidemill_under_replicated_partitions", "Partitions led here that lack a replica in sync.", short)
        yield Gauge(
            "tidemill_unclean_elections", "Leaders that may lack records, by this broker.", states.unclean_elections
        )
        for node, lag in sorted(worst_lags(partitions).items()):
            label = (("follower", str(node)),)
            yield Gauge("tidemill_replica_lag_records", "Records that a follower lacks, at most.", lag.records, label)
            yield Gauge(
                "tidemill_replica_lag_seconds", "Time since a follower had everything, at most.", lag.ms / 1000, label
            )

    return told
