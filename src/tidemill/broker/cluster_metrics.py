"""What a broker reports about its cluster on /metrics.

Partitions without a leader are counted by the controller only, so that the sum over all brokers is right.
"""

from collections.abc import Callable, Iterator

from tidemill.cluster.core.image import NO_BROKER
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.metrics import Gauge, MetricReading


def cluster_readings(
    metadata: ClusterMetadata, node_id: int, *, is_cluster: bool
) -> Callable[[], Iterator[MetricReading]]:
    """Whether this broker is the controller, and what only the controller reports."""

    def read() -> Iterator[MetricReading]:
        is_controller = not is_cluster or metadata.view.controller == node_id
        yield Gauge("tidemill_controller", "1 on the broker that is the controller, else 0.", float(is_controller))
        offline = 0
        if is_controller:
            offline = sum(
                info.leader == NO_BROKER for topic in metadata.image.by_name.values() for info in topic.partitions
            )
        yield Gauge("tidemill_offline_partitions", "Partitions without a leader; reported by the controller.", offline)

    return read
