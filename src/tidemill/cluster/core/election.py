"""Election: the leader of a partition, and which of its replicas count as in sync.

Each function takes the state of a partition and returns the next state, or None when nothing changes. The rules:
- A leader is the first live in-sync replica, in the order of the replicas. If there is none, the partition has no
  leader and the in-sync set stays, because it names the replicas that have every record. Only a topic that allows
  unclean election takes any live replica, and may lose records that only the others had.
- A broker with a full disk counts as dead when another in-sync replica is alive, because it accepts no records and
  blocks acks=all. When there is no other, it leads: its records can be read, and retention frees space.
- Every change of the leader increments the epoch, so that the previous leader is fenced.
- Every change increments the version. Of two concurrent changes to a partition one is rejected and decided again.
"""

from collections.abc import Collection
from dataclasses import replace

from tidemill.cluster.core.image import NO_BROKER, PartitionInfo


def elect(
    info: PartitionInfo, live: Collection[int], full: Collection[int] = (), *, unclean: bool
) -> PartitionInfo | None:
    """Elect a leader when the leader is not alive; otherwise remove dead brokers from the in-sync set."""
    if info.leader in live:
        return _without_the_dead(info, live)
    ready = [node for node in info.replicas if node in info.isr and node in live]
    if ready:
        return _led_by(info, ready[0], isr=tuple(node for node in info.isr if node in live))
    if full:
        return elect(info, {*live, *full}, unclean=unclean)
    alive = [node for node in info.replicas if node in live]
    if unclean and alive:
        return _led_by(info, alive[0], isr=(alive[0],))
    return None if info.leader == NO_BROKER else _led_by(info, NO_BROKER, isr=info.isr)


def _without_the_dead(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    isr = tuple(node for node in info.isr if node in live)
    return None if isr == info.isr else replace(info, isr=isr, version=info.version + 1)


def retire(info: PartitionInfo, node_id: int, live: Collection[int], *, lost: bool = False) -> PartitionInfo | None:
    """Remove a broker that stops, or that restarts and must not continue to lead as if it had never been away.

    It stays in the in-sync set when no other member is alive, because then only it has all the records. With `lost` its
    disk was replaced, so it has no records, and the set may become empty.
    """
    others = tuple(node for node in info.isr if node != node_id)
    ready = [node for node in info.replicas if node in others and node in live]
    isr = others if ready or lost else info.isr
    if info.leader == node_id:
        return _led_by(info, ready[0] if ready else NO_BROKER, isr=isr)
    return None if isr == info.isr else replace(info, isr=isr, version=info.version + 1)


def prefer(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    """Make the first replica the leader, when it is alive and in sync."""
    first = info.replicas[0]
    if info.leader == first or first not in info.isr or first not in live:
        return None
    return _led_by(info, first, isr=info.isr)


def hand_to(info: PartitionInfo, node_id: int) -> PartitionInfo | None:
    """Make another broker the only replica of a partition whose records all brokers share; nothing is copied."""
    if info.leader == node_id and info.replicas == (node_id,):
        return None
    return _led_by(replace(info, replicas=(node_id,), adding=(), removing=()), node_id, isr=(node_id,))


def reassign(info: PartitionInfo, target: tuple[int, ...]) -> PartitionInfo | None:
    """Start to move a partition: the new replicas copy it first, then the old ones are removed."""
    # An in-sync replica of an earlier reassignment may be the only one. It is removed when the new ones are in sync.
    settled = tuple(node for node in info.replicas if node not in info.adding or node in info.isr)
    if target == settled and not info.removing and not info.adding:
        return None
    leaving = tuple(node for node in settled if node not in target)
    coming = tuple(node for node in target if node not in settled)
    isr = tuple(node for node in info.isr if node in target or node in leaving)
    moved = replace(
        info, replicas=(*target, *leaving), isr=isr, version=info.version + 1, adding=coming, removing=leaving
    )
    return _if_led(moved, info)


def cancel(info: PartitionInfo) -> PartitionInfo | None:
    """Restore the replicas from before a reassignment, if at least one of them is in sync."""
    replicas = tuple(node for node in info.replicas if node not in info.adding)
    isr = tuple(node for node in info.isr if node in replicas)
    if not isr or not (info.adding or info.removing):
        return None
    back = replace(info, replicas=replicas, isr=isr, version=info.version + 1, adding=(), removing=())
    return _if_led(back, info)


def settle(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    """Finish a reassignment when every new replica is in sync. A new epoch fences the removed replicas.

    Where none is removed and the leader stays, the epoch stays, too: calls in progress do not fail.
    """
    if not info.adding and not info.removing:
        return None
    target = tuple(node for node in info.replicas if node not in info.removing)
    isr = tuple(node for node in info.isr if node in target)
    ready = [node for node in target if node in isr and node in live]
    if set(isr) != set(target) or not ready:
        return None
    leader = info.leader if info.leader in ready else ready[0]
    settled = replace(info, replicas=target, adding=(), removing=())
    if leader == info.leader and not info.removing:
        return replace(settled, isr=isr, version=info.version + 1)
    return _led_by(settled, leader, isr=isr)


def _if_led(info: PartitionInfo, before: PartitionInfo) -> PartitionInfo:
    """The state with its leader, if that is still a replica; otherwise without, and the next plan elects one."""
    if before.leader == NO_BROKER or before.leader in info.replicas:
        return info
    return replace(info, leader=NO_BROKER, leader_epoch=info.leader_epoch + 1)


def _led_by(info: PartitionInfo, leader: int, *, isr: tuple[int, ...]) -> PartitionInfo:
    return replace(info, leader=leader, isr=isr, leader_epoch=info.leader_epoch + 1, version=info.version + 1)
