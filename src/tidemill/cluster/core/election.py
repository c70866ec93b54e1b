"""Election: who leads a partition, and which of its replicas count as in sync.

Each function takes a partition and says what it becomes, or None when nothing changes. The rules:
- A leader comes from the in-sync replicas that are alive, in the order of the replicas. Without one nobody leads, and
  the in-sync set stays as it was: it names those who have everything. Only a topic that allows it (unclean) takes any
  replica that is alive, and may lose what the others had.
- A broker whose disk is full is as good as dead where another one in sync is alive: it takes no records, and holds up
  acks=all. Where none is, it leads: what it has can be read, and retention makes room.
- Every change of the leader counts the epoch up, so that whoever led before is refused.
- Every change counts the version up; who changes the same partition at the same time loses and decides again.
"""

from collections.abc import Collection
from dataclasses import replace

from tidemill.cluster.core.image import NOBODY, PartitionInfo


def elect(
    info: PartitionInfo, live: Collection[int], full: Collection[int] = (), *, unclean: bool
) -> PartitionInfo | None:
    """A leader for a partition whose leader is not alive; the dead leave the in-sync set of one that has a leader."""
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
    return None if info.leader == NOBODY else _led_by(info, NOBODY, isr=info.isr)


def _without_the_dead(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    isr = tuple(node for node in info.isr if node in live)
    return None if isr == info.isr else replace(info, isr=isr, version=info.version + 1)


def retire(info: PartitionInfo, node_id: int, live: Collection[int], *, lost: bool = False) -> PartitionInfo | None:
    """Let a broker go that stops, or that starts again and so may not lead on as if it had never been away.

    It stays in sync only where nobody else alive is: then it has what nobody else has. With `lost` its disk is not the
    one it had, so that it has nothing, and the set may become empty.
    """
    others = tuple(node for node in info.isr if node != node_id)
    ready = [node for node in info.replicas if node in others and node in live]
    isr = others if ready or lost else info.isr
    if info.leader == node_id:
        return _led_by(info, ready[0] if ready else NOBODY, isr=isr)
    return None if isr == info.isr else replace(info, isr=isr, version=info.version + 1)


def prefer(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    """The first replica leads again, when it is alive and in sync."""
    first = info.replicas[0]
    if info.leader == first or first not in info.isr or first not in live:
        return None
    return _led_by(info, first, isr=info.isr)


def hand_to(info: PartitionInfo, node_id: int) -> PartitionInfo | None:
    """Another broker leads a partition whose records all brokers see: it needs no copy, and has no other replica."""
    if info.leader == node_id and info.replicas == (node_id,):
        return None
    return _led_by(replace(info, replicas=(node_id,), adding=(), removing=()), node_id, isr=(node_id,))


def reassign(info: PartitionInfo, target: tuple[int, ...]) -> PartitionInfo | None:
    """Begin to move a partition to other brokers: the new ones copy it first, the old ones go afterwards."""
    # A replica of an earlier move that is in sync already may be the only one: it goes when the others have come.
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
    """Go back to where the partition was before it began to move, if anybody there still has it."""
    replicas = tuple(node for node in info.replicas if node not in info.adding)
    isr = tuple(node for node in info.isr if node in replicas)
    if not isr or not (info.adding or info.removing):
        return None
    back = replace(info, replicas=replicas, isr=isr, version=info.version + 1, adding=(), removing=())
    return _if_led(back, info)


def settle(info: PartitionInfo, live: Collection[int]) -> PartitionInfo | None:
    """Finish a move once every new replica is in sync: the old ones go, and the epoch tells them so."""
    if not info.adding and not info.removing:
        return None
    target = tuple(node for node in info.replicas if node not in info.removing)
    isr = tuple(node for node in info.isr if node in target)
    ready = [node for node in target if node in isr and node in live]
    if set(isr) != set(target) or not ready:
        return None
    leader = info.leader if info.leader in ready else ready[0]
    settled = replace(info, replicas=target, adding=(), removing=())
    return _led_by(settled, leader, isr=isr)


def _if_led(info: PartitionInfo, before: PartitionInfo) -> PartitionInfo:
    """The same with its leader, if that is still a replica; else the next plan elects one."""
    if before.leader == NOBODY or before.leader in info.replicas:
        return info
    return replace(info, leader=NOBODY, leader_epoch=info.leader_epoch + 1)


def _led_by(info: PartitionInfo, leader: int, *, isr: tuple[int, ...]) -> PartitionInfo:
    return replace(info, leader=leader, isr=isr, leader_epoch=info.leader_epoch + 1, version=info.version + 1)
