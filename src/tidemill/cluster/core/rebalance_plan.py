"""A rebalance as a list: the partitions whose replicas or leaders change, for a preview and for making it. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidemill.cluster.core.balance import Racks, rebalance
from tidemill.model.topics import TopicPartition


class CarriedPartition(NamedTuple):
    """A partition as it is now."""

    leader: int
    replicas: tuple[int, ...]


class PartitionPlan(NamedTuple):
    """A partition before and after the rebalance. The first new replica leads, unless its broker does not run."""

    partition: TopicPartition
    before: CarriedPartition
    replicas: tuple[int, ...]
    leader: int

    @property
    def moves(self) -> bool:
        """Whether its replicas change, or their order."""
        return self.replicas != self.before.replicas

    @property
    def copies(self) -> bool:
        """Whether a broker must copy its records."""
        return bool(set(self.replicas) - set(self.before.replicas))

    @property
    def elects(self) -> bool:
        """Whether another broker leads afterwards."""
        return self.leader != self.before.leader


def plan_rebalance(
    carried: Mapping[TopicPartition, CarriedPartition], brokers: Sequence[int], racks: Racks | None = None
) -> list[PartitionPlan]:
    """Every partition that changes, in order, if replicas and leaders are spread over these brokers."""
    after = rebalance({key: each.replicas for key, each in carried.items()}, brokers, racks)
    plans = []
    for key, each in sorted(carried.items()):
        replicas = after.get(key, each.replicas)
        plans.append(PartitionPlan(key, each, replicas, replicas[0] if replicas[0] in brokers else each.leader))
    return [each for each in plans if each.moves or each.elects]
