"""Partition assignors: pure functions from subscriptions to assignments.

A topic is any ordered value: an id on the broker's side, a name among Tidemill's own members. Every function gives each
partition of a subscribed topic to exactly one of its subscribers. It depends only on its arguments, so that every
member that computes it gets the same result.

- `assign_range`: per topic, neighbouring partitions to each member. Topics with equal counts are split the same way.
- `assign_round_robin`: all partitions are dealt out one by one.
- `assign_uniform` (also called sticky): as even as the subscriptions allow, moving as few partitions as possible.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import cycle
from typing import Any, TypeAlias, TypeVar

Topic = TypeVar("Topic", bound=Any)
Subscriptions: TypeAlias = Mapping[str, Collection[Topic]]
Counts: TypeAlias = Mapping[Topic, int]
Shares: TypeAlias = dict[str, frozenset[tuple[Topic, int]]]
Previous: TypeAlias = Mapping[str, Collection[tuple[Topic, int]]]


def assign_range(subscriptions: Subscriptions[Topic], counts: Counts[Topic]) -> Shares[Topic]:
    """Assign neighbouring partitions of each topic.

    The first members get one more when the count does not divide evenly.
    """
    shares: dict[str, set[tuple[Topic, int]]] = {member: set() for member in subscriptions}
    for topic, members in _subscribers(subscriptions, counts).items():
        each, more = divmod(counts[topic], len(members))
        first = 0
        for position, member in enumerate(members):
            size = each + (position < more)
            shares[member].update((topic, index) for index in range(first, first + size))
            first += size
    return _frozen(shares)


def assign_round_robin(subscriptions: Subscriptions[Topic], counts: Counts[Topic]) -> Shares[Topic]:
    """Assign partitions one by one to the members in turn; skip members that do not subscribe to the topic."""
    shares: dict[str, set[tuple[Topic, int]]] = {member: set() for member in subscriptions}
    subscribers = _subscribers(subscriptions, counts)
    turn = cycle(sorted(subscriptions))
    for topic, index in _partitions(subscribers, counts):
        member = next(each for each in turn if topic in subscriptions[each])
        shares[member].add((topic, index))
    return _frozen(shares)


def assign_uniform(
    subscriptions: Subscriptions[Topic], counts: Counts[Topic], previous: Previous[Topic] | None = None
) -> Shares[Topic]:
    """Assign even shares that keep the previous partitions of each member, as far as evenness allows."""
    subscribers = _subscribers(subscriptions, counts)
    shares = _kept(subscriptions, counts, previous or {})
    taken = {partition for share in shares.values() for partition in share}
    free = [partition for partition in _partitions(subscribers, counts) if partition not in taken]
    if len({frozenset(topics) for topics in subscriptions.values()}) <= 1:
        _fill_equal(shares, free)
    else:
        _fill_mixed(shares, free, subscribers)
        _level(shares, subscribers)
    return _frozen(shares)


def choose_assignor(wishes: Iterable[str | None], default: str = "uniform") -> str:
    """Return the assignor that most members ask for; the default when no member asks for one."""
    votes: dict[str, int] = {}
    for wish in wishes:
        if wish is not None:
            votes[wish] = votes.get(wish, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name)) if votes else default


def _without_previous(assign: Callable[..., Shares[Any]]) -> Callable[..., Shares[Any]]:
    def assign_from_scratch(
        subscriptions: Subscriptions[Any], counts: Counts[Any], _previous: Previous[Any] | None = None
    ) -> Shares[Any]:
        return assign(subscriptions, counts)

    return assign_from_scratch


SERVER_ASSIGNORS: Mapping[str, Callable[..., Shares[Any]]] = {
    "uniform": assign_uniform,
    "range": _without_previous(assign_range),
    "roundrobin": _without_previous(assign_round_robin),
}


def _subscribers(subscriptions: Subscriptions[Topic], counts: Counts[Topic]) -> dict[Topic, list[str]]:
    subscribers: dict[Topic, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            if topic in counts:
                subscribers.setdefault(topic, []).append(member)
    return {topic: subscribers[topic] for topic in sorted(subscribers)}


def _partitions(topics: Iterable[Topic], counts: Counts[Topic]) -> Iterator[tuple[Topic, int]]:
    return ((topic, index) for topic in topics for index in range(counts[topic]))


def _kept(
    subscriptions: Subscriptions[Topic], counts: Counts[Topic], previous: Previous[Topic]
) -> dict[str, set[tuple[Topic, int]]]:
    """Return the previous partitions that members may keep; a partition that two claim stays with the first."""
    taken: set[tuple[Topic, int]] = set()
    shares: dict[str, set[tuple[Topic, int]]] = {}
    for member in sorted(subscriptions):
        had = previous.get(member, ())
        wanted = subscriptions[member]
        share = {(topic, index) for topic, index in had if topic in wanted and index < counts.get(topic, 0)} - taken
        taken |= share
        shares[member] = share
    return shares


def _fill_equal(shares: dict[str, set[tuple[Topic, int]]], free: list[tuple[Topic, int]]) -> None:
    """Fill the shares of members with equal subscriptions: each gets the quotient, some one more for the remainder."""
    if not shares:
        return
    total = len(free) + sum(len(share) for share in shares.values())
    each, more = divmod(total, len(shares))
    for member in sorted(shares, key=lambda name: (-len(shares[name]), name)):
        share = shares[member]
        quota = each + (more > 0 and len(share) > each)
        more -= quota > each
        surplus = sorted(share)[quota:]
        share.difference_update(surplus)
        free.extend(surplus)
    waiting = iter(sorted(free))
    for member in sorted(shares, key=lambda name: (len(shares[name]), name)):
        share = shares[member]
        quota = each
        if more > 0 and len(share) <= each:
            quota, more = each + 1, more - 1
        while len(share) < quota:
            share.add(next(waiting))


def _fill_mixed(
    shares: dict[str, set[tuple[Topic, int]]], free: list[tuple[Topic, int]], subscribers: dict[Topic, list[str]]
) -> None:
    """Fill the shares of members with different subscriptions.

    Topics with the fewest subscribers come first. Each partition goes to the subscriber with the smallest share.
    """
    by_topic: dict[Topic, list[int]] = {}
    for topic, index in sorted(free):
        by_topic.setdefault(topic, []).append(index)
    for topic in sorted(by_topic, key=lambda each: (len(subscribers[each]), each)):
        smallest = [(len(shares[member]), member) for member in subscribers[topic]]
        heapify(smallest)
        for index in by_topic[topic]:
            size, member = smallest[0]
            shares[member].add((topic, index))
            heapreplace(smallest, (size + 1, member))


def _level(shares: dict[str, set[tuple[Topic, int]]], subscribers: dict[Topic, list[str]]) -> None:
    """Move partitions while a move makes two shares more even. Each move lowers the sum of squares, so this terminates.

    Most moves stay within one topic. The rest needs chains of moves over several topics.
    """
    while any(_level_topic(topic, members, shares) for topic, members in subscribers.items()):
        pass
    while moves := _way_down(shares, subscribers):
        for giver, taker, partition in moves:
            shares[giver].remove(partition)
            shares[taker].add(partition)


def _level_topic(topic: Topic, members: list[str], shares: dict[str, set[tuple[Topic, int]]]) -> bool:
    """Move partitions of one topic from the largest share that has one to the smallest; return whether any moved.

    The heaps may hold outdated sizes; such an entry is pushed back with its current size. A member that took a
    partition gives none away: the smallest share only grows, so no other is two smaller than its own.
    """
    own = {member: [index for each, index in shares[member] if each == topic] for member in members}
    givers = [(-len(shares[member]), member) for member in members]
    takers = [(len(shares[member]), member) for member in members]
    heapify(givers)
    heapify(takers)
    moved = False
    while givers:
        size, giver = givers[0]
        low, taker = takers[0]
        if not own[giver]:
            heappop(givers)
        elif -size != len(shares[giver]):
            heapreplace(givers, (-len(shares[giver]), giver))
        elif low != len(shares[taker]):
            heapreplace(takers, (len(shares[taker]), taker))
        elif -size - low >= 2:
            index = own[giver].pop()
            shares[giver].remove((topic, index))
            shares[taker].add((topic, index))
            moved = True
        else:
            break
    return moved


def _way_down(
    shares: dict[str, set[tuple[Topic, int]]], subscribers: dict[Topic, list[str]]
) -> list[tuple[str, str, tuple[Topic, int]]]:
    """Return a chain of moves from a member to one that has at least two fewer; each member between gives and takes
    one.

    The largest shares are tried first. Members that a failed search has reached cannot reach a better target
    themselves.
    """
    hopeless: set[str] = set()
    for giver in sorted(shares, key=lambda name: (-len(shares[name]), name)):
        if giver in hopeless:
            continue
        came: dict[str, tuple[str, tuple[Topic, int]] | None] = {giver: None}
        expanded: set[Topic] = set()
        waiting = deque([giver])
        while waiting:
            member = waiting.popleft()
            for topic, index in sorted(shares[member]):
                if topic in expanded:
                    continue
                expanded.add(topic)
                for taker in subscribers[topic]:
                    if taker not in came:
                        came[taker] = (member, (topic, index))
                        waiting.append(taker)
        taker = min(came, key=lambda name: (len(shares[name]), name))
        if len(shares[giver]) - len(shares[taker]) >= 2:
            return _chain(came, taker)
        hopeless.update(came)
    return []


def _chain(
    came: Mapping[str, tuple[str, tuple[Topic, int]] | None], taker: str
) -> list[tuple[str, str, tuple[Topic, int]]]:
    moves = []
    step = came[taker]
    while step is not None:
        giver, partition = step
        moves.append((giver, taker, partition))
        taker, step = giver, came[giver]
    return moves


def _frozen(shares: dict[str, set[tuple[Topic, int]]]) -> Shares[Topic]:
    return {member: frozenset(share) for member, share in shares.items()}
