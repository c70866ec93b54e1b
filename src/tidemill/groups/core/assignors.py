"""Who reads which partition: pure functions from subscriptions to assignments.

A topic is named by anything that has an order (an id on the broker's side, a name among Tidemill's own members).
Every function gives each partition of a subscribed topic to exactly one of its subscribers and depends on nothing but
its arguments, so that every member that computes it finds the same.

- `assign_range`: per topic, neighbouring partitions to each member; joins of topics with equal counts stay together.
- `assign_round_robin`: all partitions dealt out one by one.
- `assign_uniform` (also called sticky): as even as the subscriptions allow, moving as little as possible.
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
    """Neighbouring partitions of each topic; the first members get one more where it does not come out even."""
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
    """Partitions one by one to the members in turn, passing over those that do not subscribe to the topic."""
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
    """Even shares that keep what members had before, as far as evenness allows."""
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
    """The assignor that most members ask for; the default when nobody does."""
    votes: dict[str, int] = {}
    for wish in wishes:
        if wish is not None:
            votes[wish] = votes.get(wish, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name)) if votes else default


def _without_previous(assign: Callable[..., Shares[Any]]) -> Callable[..., Shares[Any]]:
    def assign_anew(
        subscriptions: Subscriptions[Any], counts: Counts[Any], _previous: Previous[Any] | None = None
    ) -> Shares[Any]:
        return assign(subscriptions, counts)

    return assign_anew


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
    """What members had and may still have; a partition that two claim stays with the first."""
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
    """Everyone subscribes to the same: all get the quotient, as many as the remainder one more."""
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
    """The topics that the fewest can read go first, each partition to the subscriber with the least."""
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
    """Move partitions down while that makes two shares more even; each move lowers the sum of squares, so it ends.

    Most is done topic by topic; what is left takes chains of moves over several topics.
    """
    while any(_level_topic(topic, members, shares) for topic, members in subscribers.items()):
        pass
    while moves := _way_down(shares, subscribers):
        for giver, taker, partition in moves:
            shares[giver].remove(partition)
            shares[taker].add(partition)


def _level_topic(topic: Topic, members: list[str], shares: dict[str, set[tuple[Topic, int]]]) -> bool:
    """Move partitions of one topic from the largest share that has one to the smallest; whether any moved.

    The heaps may hold sizes that are out of date; such an entry is put back with the size of now.
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
            own[taker].append(index)
            moved = True
        else:
            break
    return moved


def _way_down(
    shares: dict[str, set[tuple[Topic, int]]], subscribers: dict[Topic, list[str]]
) -> list[tuple[str, str, tuple[Topic, int]]]:
    """A chain of moves from a member to one that has at least two less; those between give one and take one.

    The largest shares are tried first: whoever such a search has reached in vain reaches nothing better itself.
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
