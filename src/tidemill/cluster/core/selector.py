"""The selector: which brokers a client of a topic should connect to, best first.

A broker that already serves the topic to fewer than 4 clients is preferred, because it reads the topic anyway. Next are
brokers that do not serve it: those with the least load and the fewest topics first. Then come those with 4 to 6 clients
of the topic. One with 7 is last.

The measured load decides between brokers, not against a topic that they serve already: small changes of load must not
spread a topic over more brokers. Brokers that are overloaded, or that the others find slow, come after all of these.
Brokers that are not healthy come last. Weights halve from one broker to the next, and loaded brokers get less.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill.cluster.core.broker_load import LoadLevel

CONSUMERS_GOOD = 4
CONSUMERS_MAX = 7
WEIGHT_PARTS = {0: 1.0, 1: 0.5, 2: 0.125, 3: 0.125}
"""The part of its weight that a broker keeps, by `_strain`."""


class Candidate(NamedTuple):
    """What is known of a broker: how many clients of each topic it serves, and its load."""

    node_id: int
    consumers: Mapping[str, int]
    healthy: bool = True
    level: LoadLevel = LoadLevel.NORMAL
    slow: bool = False
    requests_per_s: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether it should get clients at all, while another one can."""
        return self.healthy and not self.slow and self.level is not LoadLevel.OVERLOADED


class Choice(NamedTuple):
    """A broker to connect to, and its share of the calls."""

    node_id: int
    weight: int


def choose(topic: str, candidates: Iterable[Candidate]) -> tuple[Choice, ...]:
    """The brokers for a client of this topic, best first; the weights add up to at most 100."""
    known = list(candidates)
    below_max = [one for one in known if one.consumers.get(topic, 0) < CONSUMERS_MAX]
    if any(one.is_good for one in below_max):
        known = below_max
    ranked = sorted(known, key=lambda one: _rank(topic, one))
    return tuple(Choice(one.node_id, weight) for one, weight in zip(ranked, _weights(ranked), strict=True))


def load_order(one: Candidate) -> tuple[int, int, int, int]:
    """The order of brokers that do not differ by the topic: by level, topics, requests and number."""
    return int(one.level is not LoadLevel.NORMAL), len(one.consumers), int(one.requests_per_s).bit_length(), one.node_id


def _rank(topic: str, one: Candidate) -> tuple[int, int, int, tuple[int, int, int, int]]:
    mine = one.consumers.get(topic, 0)
    if 0 < mine < CONSUMERS_GOOD:
        group, within = 0, -mine
    elif mine == 0:
        group, within = 1, 0
    else:
        group, within = 2, mine
    return max(0, _strain(one) - 1), group, within, load_order(one)


def _strain(one: Candidate) -> int:
    """0: normal, 1: busy, 2: overloaded or slow, 3: not healthy."""
    if not one.healthy:
        return 3
    return 2 if not one.is_good else int(one.level is LoadLevel.BUSY)


def _weights(ranked: list[Candidate]) -> list[int]:
    parts = [WEIGHT_PARTS[_strain(one)] * 0.5**place for place, one in enumerate(ranked)]
    total = sum(parts)
    return [max(1, int(100 * part / total)) for part in parts]
