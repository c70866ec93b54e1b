"""A cluster of clients that follow hints, on a virtual clock: it converges, and no client moves twice in a window.

Brokers see the counts of others late, each with another delay. A client that moves counts at no broker for a while.
Loads follow the clients: a hot broker is overloaded by its own.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tidemill.client.hint_rules import HintRules
from tidemill.cluster.core.assignments import Assignments
from tidemill.cluster.core.broker_load import LoadAverage, LoadSample
from tidemill.cluster.core.hints import HintPlanner
from tidemill.cluster.core.selector import Candidate

TOPIC = "orders"
WINDOW_MS = 10_000
STEP_MS = 500
SEEDS = range(10)


@dataclass
class SimulatedClient:
    """A client, the broker that it uses, and when it arrives at the next one."""

    name: str
    broker: int
    rules: HintRules
    going_to: int = 0
    arrives_ms: int = 0
    moved_ms: list[int] = field(default_factory=list)


class MovingCluster:
    """Brokers and clients."""

    def __init__(self, seed: int, brokers: int, clients: int, *, first: int | None = None) -> None:
        self.draw = random.Random(seed)
        self.now_ms = 0
        self.planners = {node: HintPlanner(node, WINDOW_MS) for node in range(1, brokers + 1)}
        self.loads = {node: LoadAverage() for node in self.planners}
        self.lag_ms = {node: self.draw.randrange(0, 2_500) for node in self.planners}
        self.history: list[tuple[int, dict[int, int]]] = []
        self.cost: dict[int, float] = dict.fromkeys(self.planners, 0.0)
        """The delay of the event loop that one client causes at a broker."""
        self.base: dict[int, float] = dict.fromkeys(self.planners, 1.0)
        self.dead: set[int] = set()
        nodes = sorted(self.planners)
        self.clients = [
            SimulatedClient(f"client-{number}", first or self.draw.choice(nodes), HintRules(follows=True))
            for number in range(clients)
        ]

    def counts(self) -> dict[int, int]:
        """The connected clients of each broker."""
        found = Counter(one.broker for one in self.clients if not one.going_to)
        return {node: found[node] for node in self.planners if node not in self.dead}

    def seen(self, node: int) -> list[Candidate]:
        """What a broker knows of the others: their counts of some time ago, and its own."""
        oldest_ms = self.now_ms - self.lag_ms[node]
        old = next((counts for at_ms, counts in reversed(self.history) if at_ms <= oldest_ms), self.counts())
        own = self.counts()
        return [
            Candidate(
                each,
                {TOPIC: count} if (count := (own if each == node else old).get(each, 0)) else {},
                level=self.loads[each].level,
            )
            for each in own
        ]

    def step(self) -> None:
        """Let half a second pass."""
        self.now_ms += STEP_MS
        counts = self.counts()
        self.history = [*self.history[-10:], (self.now_ms, counts)]
        for node, count in counts.items():
            self.loads[node].add(LoadSample(loop_delay_ms=self.base[node] + self.cost[node] * count), STEP_MS / 1_000)
        for client in self.draw.sample(self.clients, len(self.clients)):
            if client.going_to:
                if self.now_ms >= client.arrives_ms:
                    client.broker, client.going_to = client.going_to, 0
            else:
                self._ask(client)

    def _ask(self, client: SimulatedClient) -> None:
        move = self.planners[client.broker].hint(TOPIC, client.name, self.now_ms, lambda: self.seen(client.broker))
        if move is None:
            return
        target = client.rules.target([str(move.target)], WINDOW_MS, self.now_ms, str(client.broker))
        if target is not None:
            client.rules.moved(self.now_ms)
            client.moved_ms.append(self.now_ms)
            client.going_to, client.arrives_ms = int(target), self.now_ms + self.draw.randrange(0, 3_000)

    def run(self, seconds: int) -> int:
        """Let time pass; return how many moves there were."""
        before = sum(len(one.moved_ms) for one in self.clients)
        for _ in range(seconds * 1_000 // STEP_MS):
            self.step()
        for one in self.clients:
            gaps = [later - sooner for sooner, later in zip(one.moved_ms, one.moved_ms[1:], strict=False)]
            assert all(gap >= WINDOW_MS for gap in gaps), "a client moved twice in a window"
        return sum(len(one.moved_ms) for one in self.clients) - before

    def kill(self, node: int) -> None:
        """End a broker: its clients ask the overseer for another one."""
        self.dead.add(node)
        overseer = Assignments()
        for one in self.clients:
            if node in (one.broker, one.going_to):
                choices, _ = overseer.assign(TOPIC, one.name, self.seen(min(self.counts())), self.now_ms)
                one.going_to, one.arrives_ms = choices[0].node_id, self.now_ms + self.draw.randrange(500, 5_000)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_start_converges_with_few_moves(seed: int) -> None:
    draw = random.Random(seed)
    brokers, clients = draw.randint(2, 6), draw.randint(1, 40)
    cluster = MovingCluster(seed, brokers, clients, first=draw.choice([None, 1]))
    moves = cluster.run(120)
    assert cluster.run(120) == 0, f"seed {seed}: it does not come to rest: {cluster.counts()}"
    assert moves <= 2 * clients, f"seed {seed}: {moves} moves of {clients} clients"
    counts = cluster.counts()
    assert sum(counts.values()) == clients
    needed = min(brokers, -(-clients // 4))
    assert sum(count > 0 for count in counts.values()) <= needed, f"seed {seed}: {counts}"
    share = -(-clients // needed)
    assert max(counts.values()) <= max(7, share + share // 4), f"seed {seed}: {counts}"


@pytest.mark.parametrize("seed", SEEDS)
def test_eight_clients_use_two_of_four_brokers_also_after_one_is_lost(seed: int) -> None:
    cluster = MovingCluster(seed, 4, 8)
    cluster.run(120)
    assert sum(count > 0 for count in cluster.counts().values()) == 2, f"seed {seed}: {cluster.counts()}"
    cluster.kill(max(cluster.counts(), key=cluster.counts().__getitem__))
    cluster.run(60)
    assert cluster.run(60) == 0, f"seed {seed}"
    assert sum(count > 0 for count in cluster.counts().values()) == 2, f"seed {seed}: {cluster.counts()}"


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_leave_an_overloaded_broker_and_do_not_swing_back(seed: int) -> None:
    """Broker 1 has other work and is overloaded; later it is free again, and the clients stay where they are."""
    cluster = MovingCluster(seed, 4, 8, first=1)
    cluster.run(60)
    cluster.base[1] = 400.0
    cluster.run(180)
    assert cluster.counts()[1] == 0, f"seed {seed}: {cluster.counts()}"
    cluster.base[1] = 1.0
    assert cluster.run(120) == 0, f"seed {seed}: the clients swing back"


@pytest.mark.parametrize("cost_ms", [30.0, 55.0, 80.0, 120.0])
def test_clients_that_overload_every_broker_that_they_use_come_to_rest(cost_ms: float) -> None:
    """The worst case: with few brokers these are overloaded, and without, fewer would suffice. The swings end."""
    for seed in range(3):
        cluster = MovingCluster(seed, 4, 8, first=1)
        cluster.cost = dict.fromkeys(cluster.cost, cost_ms)
        assert cluster.run(900) <= 6 * 8, f"seed {seed}"
        assert cluster.run(900) <= 3 * 8, f"seed {seed}"
