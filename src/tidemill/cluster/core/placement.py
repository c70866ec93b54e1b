"""Placement: which brokers carry the partitions of a topic.

Round robin over the brokers. The first replicas rotate, and the others follow at a distance that grows with every
round. So when a broker is lost, its leaderships do not all move to the same broker. Brokers of different racks
alternate too, and no rack holds two replicas of a partition while another holds none. `start` is the position of the
first broker; without it, all topics with one partition would start at the same broker. The result is deterministic.

A new partition has leader epoch 0 and all of its replicas in sync, because all of them are empty.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.errors import InvalidConfig, InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor

PARTITIONS_MAX = 10_000
"""The maximum number of partitions of a topic; each needs a directory and open files."""

Racks = Mapping[int, str | None]


def place(
    brokers: Sequence[int],
    first: int,
    total: int,
    replication_factor: int,
    *,
    racks: Racks | None = None,
    start: int = 0,
) -> tuple[PartitionInfo, ...]:
    """Partitions `first` to `total - 1` on these brokers."""
    if not first < total <= PARTITIONS_MAX:
        raise InvalidPartitions(f"{total} is not a number of partitions between {first + 1} and {PARTITIONS_MAX}")
    if not 1 <= replication_factor <= len(brokers):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is not between 1 and the number of brokers, {len(brokers)}"
        )
    where = racks or {}
    ordered = _taking_turns(sorted(brokers), where)
    return tuple(
        _fresh(index, _spread(ordered, where, start + index, replication_factor)) for index in range(first, total)
    )


def place_assigned(brokers: Sequence[int], assignment: Mapping[int, Sequence[int]]) -> tuple[PartitionInfo, ...]:
    """Partitions on the brokers that a client chose."""
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicaAssignment("the partitions of an assignment must be numbered from 0 without a gap")
    if len(assignment) > PARTITIONS_MAX:
        raise InvalidPartitions(f"{len(assignment)} partitions are more than {PARTITIONS_MAX}")
    for index, replicas in assignment.items():
        check_replicas(brokers, index, replicas)
    return tuple(_fresh(index, tuple(assignment[index])) for index in sorted(assignment))


def check_replicas(brokers: Sequence[int], index: int, replicas: Sequence[int]) -> None:
    """Reject replicas that are empty, repeated or on unknown brokers."""
    if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= set(brokers):
        raise InvalidReplicaAssignment(
            f"partition {index} cannot be on brokers {list(replicas)}; choose different ones of {sorted(brokers)}"
        )


def check_rack(rack: str | None, racks: Sequence[str]) -> None:
    """Reject a broker in an unknown rack, because it would count as a separate failure domain."""
    if racks and rack not in racks:
        given = f"rack {rack!r} is not one" if rack else "this broker has no rack, which is not one"
        raise InvalidConfig(
            f"{given} of the cluster's racks (tidemill.racks): {', '.join(racks)}; choose one with --rack"
        )


def rack_doubt(rack: str | None, others: Collection[str | None]) -> str | None:
    """A warning about a broker's rack compared with those of the others, or None."""
    named = {each for each in others if each}
    if named and not rack:
        return f"this broker has no --rack, but others are in {', '.join(sorted(named))}"
    if rack and others and not named:
        return f"this broker is in rack {rack}, but no other broker has a --rack"
    return None


def _taking_turns(brokers: Sequence[int], racks: Racks) -> list[int]:
    """One broker of each rack, then the second of each."""
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for broker in brokers:
        by_rack[racks.get(broker) or ""].append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(turns) if broker is not None]


def _spread(ordered: Sequence[int], racks: Racks, number: int, copies: int) -> tuple[int, ...]:
    """The replicas of the partition with this number: the broker whose turn it is, then new racks before used ones."""
    line = list(_line(ordered, number))
    chosen = [line.pop(0)]
    while len(chosen) < copies:
        used = {racks.get(broker) for broker in chosen}
        following = next((broker for broker in line if racks.get(broker) not in used), line[0])
        line.remove(following)
        chosen.append(following)
    return tuple(chosen)


def _line(ordered: Sequence[int], number: int) -> Iterator[int]:
    """All brokers in the order in which they are considered for this partition."""
    count = len(ordered)
    first, rounds = number % count, number // count
    yield ordered[first]
    for step in range(count - 1):
        yield ordered[(first + 1 + (rounds + step) % (count - 1)) % count]


def _fresh(index: int, replicas: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader=replicas[0], replicas=replicas, isr=replicas, leader_epoch=0)
