"""What a broker reports about its cluster on /metrics.

Partitions without a leader are counted by the controller only, so that the sum over all brokers is right.
"""

from collections.abc import Callable, Iterator

from tidemill.cluster.core.image import NO_BROKER
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.cluster.partition_states import States
from tidemill.model.metrics import CounterReading, Gauge, MetricReading


def cluster_readings(
    metadata: ClusterMetadata, states: States, node_id: int, *, is_cluster: bool
) -> Callable[[], Iterator[MetricReading]]:
    """Whether this broker is the controller, what only the controller reports, and changes of in-sync sets."""

    def read() -> Iterator[MetricReading]:
        yield Gauge("tidemill_brokers", "Brokers that are members of the cluster now.", len(metadata.image.brokers))
        is_controller = not is_cluster or metadata.view.controller == node_id
        yield Gauge("tidemill_controller", "1 on the broker that is the controller, else 0.", float(is_controller))
        offline = 0
        if is_controller:
            offline = sum(
                info.leader == NO_BROKER for topic in metadata.image.by_name.values() for info in topic.partitions
            )
        yield Gauge("tidemill_offline_partitions", "Partitions without a leader; reported by the controller.", offline)
        yield CounterReading(
            "tidemill_isr_shrinks", "In-sync sets from which this broker removed a replica.", states.isr_shrinks
        )
        yield CounterReading(
            "tidemill_isr_expands", "In-sync sets to which this broker added a replica.", states.isr_expands
        )
        yield CounterReading(
            "tidemill_unclean_elections",
            "Unclean leader elections written by this broker; records may be lost.",
            states.unclean_elections,
        )

    return read
