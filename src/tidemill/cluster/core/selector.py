"""The selector: which brokers a client of a topic should talk to, best first.

A broker that serves the topic to others already is preferred, for it reads the topic anyway, until it has as many
consumers of it as is good (4); then brokers that serve the fewest topics; then those with more consumers than is good,
up to the most (7). A broker that has that many is named only when every one has. Brokers that are not well come after
those that are. The weight falls from one to the next by half: what a client that spreads its calls goes by.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

CONSUMERS_GOOD = 4
CONSUMERS_MAX = 7


class BrokerLoad(NamedTuple):
    """How many consumers of each topic a broker serves."""

    node_id: int
    consumers: Mapping[str, int]
    healthy: bool = True


class Choice(NamedTuple):
    """A broker to talk to, and how much of the talk it should get."""

    node_id: int
    weight: int


def choose(topic: str, loads: Iterable[BrokerLoad]) -> tuple[Choice, ...]:
    """The brokers for a client of this topic, best first; weights add up to 100 or a little less."""
    known = list(loads)
    room = [load for load in known if load.consumers.get(topic, 0) < CONSUMERS_MAX] or known
    ranked = sorted(room, key=lambda load: _rank(topic, load))
    return tuple(Choice(load.node_id, weight) for load, weight in zip(ranked, _weights(len(ranked)), strict=True))


def _rank(topic: str, load: BrokerLoad) -> tuple[int, int, int, int]:
    mine = load.consumers.get(topic, 0)
    if 0 < mine < CONSUMERS_GOOD:
        group, within = 0, -mine
    elif mine == 0:
        group, within = 1, len(load.consumers)
    else:
        group, within = 2, mine
    return (0 if load.healthy else 1, group, within, load.node_id)


def _weights(count: int) -> list[int]:
    total = (1 << count) - 1
    return [max(1, 100 * (1 << (count - 1 - place)) // total) for place in range(count)]
