"""Balance: which replicas to move so that every broker carries and leads about the same number.

As few replicas as possible move. A replica moves from the broker with most to the one with fewest until they differ by
at most one. It never moves to a rack that already holds the partition if it leaves a rack that holds it once. Replicas
on brokers that no longer exist are replaced. Then first replicas swap places with other replicas of the same partition,
which copies no data. The result is deterministic.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tidemill.model.topics import TopicPartition

Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]


def rebalance(
    carried: Mapping[TopicPartition, Replicas], brokers: Sequence[int], racks: Racks | None = None
) -> dict[TopicPartition, Replicas]:
    """The new replicas of every partition that has to change."""
    where = racks or {}
    ordered = sorted(brokers)
    after = {key: tuple(carried[key]) for key in sorted(carried)}
    _replace_missing(after, ordered, where)
    _even_out(after, ordered, where)
    _even_out_leaders(after, ordered)
    return {key: replicas for key, replicas in after.items() if replicas != tuple(carried[key])}


def _loads(after: Mapping[TopicPartition, Replicas], brokers: Sequence[int]) -> Counter[int]:
    loads = Counter(dict.fromkeys(brokers, 0))
    loads.update(node for replicas in after.values() for node in replicas)
    return loads


def _replace_missing(after: dict[TopicPartition, Replicas], brokers: Sequence[int], racks: Racks) -> None:
    loads = _loads(after, brokers)
    for key, before in after.items():
        now = before
        for gone in [node for node in before if node not in brokers]:
            free = [node for node in brokers if node not in now]
            if free:
                used = {racks.get(node) for node in now if node != gone}
                best = min(free, key=lambda node: (racks.get(node) in used, loads[node], node))
                now = _swap(now, gone, best)
                loads[best] += 1
        after[key] = now


def _even_out(after: dict[TopicPartition, Replicas], brokers: Sequence[int], racks: Racks) -> None:
    loads = _loads(after, brokers)
    moved = True
    while moved:
        moved = False
        by_load = sorted(brokers, key=lambda node: (loads[node], node))
        for full in reversed(by_load):
            for idle in by_load:
                if loads[full] - loads[idle] <= 1:
                    break
                key = _movable(after, full, idle, racks)
                if key is not None:
                    after[key] = _swap(after[key], full, idle)
                    loads[full] -= 1
                    loads[idle] += 1
                    moved = True
                    break
            if moved:
                break


def _movable(after: Mapping[TopicPartition, Replicas], full: int, idle: int, racks: Racks) -> TopicPartition | None:
    """A partition that may move, preferably one that the `full` broker would not lead."""
    found = [
        (replicas[0] == full, key)
        for key, replicas in after.items()
        if full in replicas and idle not in replicas and _keeps_racks(replicas, full, idle, racks)
    ]
    return min(found)[1] if found else None


def _keeps_racks(replicas: Replicas, full: int, idle: int, racks: Racks) -> bool:
    others = {racks.get(node) for node in replicas if node != full}
    return racks.get(idle) not in others or racks.get(full) in others


def _even_out_leaders(after: dict[TopicPartition, Replicas], brokers: Sequence[int]) -> None:
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in after.values())
    for _ in range(len(after)):
        found = [
            (leads[node] - leads[replicas[0]], key, node)
            for key, replicas in after.items()
            for node in replicas[1:]
            if leads[replicas[0]] - leads[node] > 1
        ]
        if not found:
            return
        _, key, node = min(found)
        leads[after[key][0]] -= 1
        leads[node] += 1
        after[key] = (node, *(each for each in after[key] if each != node))


def _swap(replicas: Replicas, old: int, new: int) -> Replicas:
    return tuple(new if node == old else node for node in replicas)
