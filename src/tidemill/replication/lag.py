"""Replica lag of the followers of the partitions that this broker leads, for `cluster status` and /metrics.

A follower's lag in records is the number of records after its last fetch offset. Under steady load these records are in
flight. Its lag in time is the time since the follower last had every record. When that time exceeds
`replica.lag.time.max.ms`, the follower leaves the in-sync set. Both values are the maximum over all partitions of the
follower.
"""

from collections.abc import Iterable, Mapping

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
