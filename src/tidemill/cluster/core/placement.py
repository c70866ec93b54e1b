"""Placement: which brokers carry the partitions of a topic.

Round robin over the brokers in order of their number, the replicas of a partition on the brokers that follow its
first: leaders and replicas spread evenly and the same question always gets the same answer.
A new partition has leader epoch 0 and all of its replicas in sync, for all of them are empty.
"""

from collections.abc import Mapping, Sequence

from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor

PARTITIONS_MAX = 10_000
"""Most partitions of one topic: each costs a folder and open files."""


def place(brokers: Sequence[int], first: int, total: int, replication_factor: int) -> tuple[PartitionInfo, ...]:
    """Partitions `first` to `total - 1` on these brokers."""
    if not first < total <= PARTITIONS_MAX:
        raise InvalidPartitions(f"{total} is not a number of partitions between {first + 1} and {PARTITIONS_MAX}")
    if not 1 <= replication_factor <= len(brokers):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(brokers)}"
        )
    ordered = sorted(brokers)
    return tuple(
        _fresh(index, tuple(ordered[(index + step) % len(ordered)] for step in range(replication_factor)))
        for index in range(first, total)
    )


def place_as_told(brokers: Sequence[int], assignment: Mapping[int, Sequence[int]]) -> tuple[PartitionInfo, ...]:
    """Partitions on the brokers that a client named."""
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicaAssignment("the partitions of an assignment are numbered from 0 without a gap")
    if len(assignment) > PARTITIONS_MAX:
        raise InvalidPartitions(f"{len(assignment)} partitions are more than {PARTITIONS_MAX}")
    for index, replicas in assignment.items():
        if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= set(brokers):
            raise InvalidReplicaAssignment(
                f"partition {index} cannot be on brokers {list(replicas)}; there are {sorted(brokers)}"
            )
    return tuple(_fresh(index, tuple(assignment[index])) for index in sorted(assignment))


def _fresh(index: int, replicas: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader=replicas[0], replicas=replicas, isr=replicas, leader_epoch=0)
