"""Moves that restore the balance of a topic: how many of its clients should change from one broker to another.

Every broker computes the same moves from the same counts, and sends hints to its own clients. Nothing moves while the
balance is good enough. Clients leave a broker for one of three reasons:

- It is unhealthy, overloaded or slow. Half of its clients move at a time, so that a short trouble moves few, and so
  that the load can be measured again in between.
- It has more than 7 clients of the topic, or clearly more than its share.
- The topic is on more brokers than it needs. For 8 clients two brokers suffice: the others would read it once more.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from tidemill.cluster.core.broker_load import LoadLevel
from tidemill.cluster.core.selector import CONSUMERS_GOOD, CONSUMERS_MAX, Candidate, load_order

SLACK = 4
"""A broker has clearly more than its share when it has a quarter more."""


class MoveReason(StrEnum):
    """Why clients should move."""

    UNFIT = "the broker is degraded, overloaded or slow"
    CROWDED = "the broker serves more than its share of the clients"
    SPARE = "fewer brokers suffice for the clients"


class ClientMove(NamedTuple):
    """So many clients of the topic should change from one broker to another."""

    source: int
    target: int
    clients: int
    reason: MoveReason


def plan_moves(topic: str, candidates: Iterable[Candidate]) -> tuple[ClientMove, ...]:
    """The moves that restore the balance; none if it is good enough."""
    known = sorted(candidates, key=lambda one: one.node_id)
    counts = {one.node_id: one.consumers.get(topic, 0) for one in known}
    total = sum(counts.values())
    good = [one for one in known if one.is_good]
    if not total or not good:
        return ()
    needed = min(len(good), -(-total // CONSUMERS_GOOD))
    used = sorted(good, key=lambda one: (-counts[one.node_id], load_order(one)))[:needed]
    share = -(-total // needed)
    leaving = _leaving(known, used, counts, share)
    room = {one.node_id: max(0, share - counts[one.node_id]) for one in used}
    normal = {one.node_id for one in used if one.level is LoadLevel.NORMAL}
    moves = []
    for source, count, reason in leaving:
        left = count
        for target, free in list(room.items()):
            if target == source or (reason is MoveReason.UNFIT and target not in normal):
                continue
            taken = min(left, free)
            if taken:
                moves.append(ClientMove(source, target, taken, reason))
                room[target] -= taken
                left -= taken
    return tuple(moves)


def _leaving(
    known: list[Candidate], used: list[Candidate], counts: dict[int, int], share: int
) -> list[tuple[int, int, MoveReason]]:
    """How many clients should leave which brokers."""
    keeps = {one.node_id for one in used}
    most = max(CONSUMERS_MAX, share + share // SLACK)
    found = []
    for one in known:
        count = counts[one.node_id]
        if not one.is_good and count:
            found.append((one.node_id, -(-count // 2), MoveReason.UNFIT))
        elif one.node_id not in keeps and count:
            found.append((one.node_id, count, MoveReason.SPARE))
        elif count > most:
            found.append((one.node_id, count - share, MoveReason.CROWDED))
    return found
