"""The seed's example: 8 clients on 4 brokers use 2 of them, in any order of questions, connections and news."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.cluster.core.assignments import ASSIGNED_MS, ASSIGNMENTS_MAX, OF_TOPIC_MAX, Assignments
from tidemill.cluster.core.broker_load import LoadLevel
from tidemill.cluster.core.selector import Candidate

TOPIC = "orders"
NODES = (1, 2, 3, 4)
LEVELS = (LoadLevel.NORMAL, LoadLevel.BUSY)


class Cluster:
    """Four brokers with connected clients, of which the overseer knows only what was published last."""

    def __init__(self) -> None:
        self.connected = dict.fromkeys(NODES, 0)
        self.published = dict(self.connected)
        self.sent: dict[str, int] = {}
        self.assignments = Assignments()

    def candidates(self, levels: dict[int, LoadLevel], rates: dict[int, float]) -> list[Candidate]:
        return [
            Candidate(
                node,
                {TOPIC: count} if count else {},
                level=levels.get(node, LoadLevel.NORMAL),
                requests_per_s=rates.get(node, 0),
            )
            for node, count in self.published.items()
        ]

    def ask(self, client: str, levels: dict[int, LoadLevel], rates: dict[int, float], now_ms: int = 0) -> int:
        choices, _ = self.assignments.assign(TOPIC, client, self.candidates(levels, rates), now_ms)
        self.sent[client] = choices[0].node_id
        return choices[0].node_id

    def connect(self, client: str) -> None:
        self.connected[self.sent.pop(client)] += 1


@given(st.integers(0, 2**32))
@settings(max_examples=500)
def test_eight_clients_on_four_brokers_use_two_every_time(seed: int) -> None:
    """Each client asks, and connects later; each broker publishes at any time; the loads change all the while."""
    draw, cluster = random.Random(seed), Cluster()
    waiting = [f"client-{number}" for number in range(8)]
    while waiting or cluster.sent:
        step = draw.choice(["publish", *(["ask"] if waiting else []), *(["connect"] if cluster.sent else [])])
        if step == "ask":
            levels = {node: draw.choice(LEVELS) for node in NODES}
            rates = {node: draw.random() * 10 ** draw.randrange(6) for node in NODES}
            cluster.ask(waiting.pop(draw.randrange(len(waiting))), levels, rates)
        elif step == "connect":
            cluster.connect(draw.choice(sorted(cluster.sent)))
        else:
            node = draw.choice(NODES)
            cluster.published[node] = cluster.connected[node]
    assert sorted(cluster.connected.values()) == [0, 0, 4, 4]


def test_clients_that_ask_at_the_same_moment_are_spread() -> None:
    cluster = Cluster()
    nodes = [cluster.ask(f"client-{number}", {}, {}) for number in range(8)]
    assert nodes == [1] * 4 + [2] * 4


def test_a_client_that_asks_again_counts_once() -> None:
    cluster = Cluster()
    assert {cluster.ask("same", {}, {}) for _ in range(20)} == {1}
    assert len(cluster.assignments) == 1


def test_a_client_without_an_id_is_not_remembered() -> None:
    cluster = Cluster()
    assert {cluster.ask("", {}, {}) for _ in range(20)} == {1}
    assert len(cluster.assignments) == 0


def test_clients_that_never_connect_count_for_a_while_only() -> None:
    cluster = Cluster()
    for number in range(4):
        cluster.ask(f"lost-{number}", {}, {})
    assert cluster.ask("next", {}, {}, ASSIGNED_MS - 1) == 2
    assert cluster.ask("later", {}, {}, ASSIGNED_MS) == 2, "of the broker that one client is on its way to"
    assert cluster.ask("much later", {}, {}, 3 * ASSIGNED_MS) == 1
    assert len(cluster.assignments) == 1


def test_an_overloaded_broker_gets_no_new_client() -> None:
    cluster = Cluster()
    cluster.published[1] = 2
    assert cluster.ask("a", {1: LoadLevel.OVERLOADED}, {}) != 1


def test_many_questions_are_bounded() -> None:
    assignments, candidates = Assignments(), [Candidate(1, {})]
    for number in range(ASSIGNMENTS_MAX + 100):
        assignments.assign(f"t{number}", "client", candidates, 0)
    assert len(assignments) == ASSIGNMENTS_MAX
    assignments.assign("t", "", candidates, ASSIGNED_MS)
    assert len(assignments) == 0


def test_one_topic_cannot_take_all_assignments() -> None:
    assignments = Assignments()
    for number in range(OF_TOPIC_MAX + 10):
        assignments.assign(TOPIC, f"client-{number}", [Candidate(1, {})], 0)
    assert len(assignments) == OF_TOPIC_MAX


def test_the_expected_clients_are_reported() -> None:
    _, counts = Assignments().assign(TOPIC, "a", [Candidate(1, {TOPIC: 3})], 0)
    assert counts == {1: 3}
