"""The selector: which brokers a client of a topic should connect to, best first.

A broker that already serves the topic to fewer than 4 consumers is preferred, because it reads the topic anyway. Next
are the brokers that serve the fewest topics, then those with 4 to 6 consumers of the topic. A broker with 7 is returned
only when every broker has that many. Brokers that are not healthy come last. The weight halves from one broker to the
next; a client that spreads its calls uses it.
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
    """A broker to connect to, and its share of the calls."""

    node_id: int
    weight: int


def choose(topic: str, loads: Iterable[BrokerLoad]) -> tuple[Choice, ...]:
    """The brokers for a client of this topic, best first; the weights add up to at most 100."""
    known = list(loads)
    below_max = [load for load in known if load.consumers.get(topic, 0) < CONSUMERS_MAX] or known
    ranked = sorted(below_max, key=lambda load: _rank(topic, load))
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
