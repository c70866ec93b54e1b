"""Three brokers with logins: every read of the API gives the same at each of them, and every change is audited.

A new route of the API fails this module until it is in a table here.
"""

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from tests.support.guarded_cluster import LOST, NUMBERS, GuardedCluster, guarded_cluster
from tests.support.guarded_console import ADMIN
from tests.support.route_requests import GROUP, REQUESTS, TIMELINE, TOPIC, VICTIM, fill, with_member
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.client.kafka import KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import PAGE, RouteAccess

WAIT_S = 20.0
STREAM = "text/event-stream"
REPLICATED, LONELY = "payroll-replicated", "payroll-lonely"
WORKED, FAILING, DEAD = "payroll-worked", "payroll-failing", "payroll-dead"
FIRST, SECOND, THIRD, FOURTH = MESSAGES = ("payroll-1", "payroll-2", "payroll-3", "payroll-4")
MOVING = frozenset(
    (
        "now_ms",
        "uptime_s",
        "load",
        "wall_ms",
        "disk_free_bytes",
        "connections",
        "log_bytes",
        "lag_s",
        "ms",
        "elapsed_ms",
        "elapsed_s",
    )
)
"""Fields that differ from one moment to the next, wherever they are in a document."""


class SameView(NamedTuple):
    """A request that reads, and a part of its answer that proves that it has content."""

    path: str
    shows: str
    body: Any = None


_QUERY = {"query": "SELECT topic, partition, value FROM messages WHERE topic LIKE 'payroll%' ORDER BY ALL"}
VIEWS: dict[str, SameView] = {
    "GET /api/v1/overview": SameView("/overview", '"unreachable_brokers": []'),
    "GET /api/v1/overview/history": SameView("/overview/history?minutes=5", f'"{TOPIC}"'),
    "GET /api/v1/topics": SameView("/topics", REPLICATED),
    "GET /api/v1/topics/{topic}": SameView(f"/topics/{REPLICATED}", '"isr"'),
    "GET /api/v1/topics/{topic}/settings": SameView(f"/topics/{REPLICATED}/settings", '"1234567"'),
    "GET /api/v1/topics/{topic}/producers": SameView(f"/topics/{REPLICATED}/producers", '"producer_id"'),
    "GET /api/v1/topics/{topic}/history": SameView(f"/topics/{TOPIC}/history", TOPIC),
    "GET /api/v1/topics/{topic}/groups": SameView(f"/topics/{TOPIC}/groups", GROUP),
    "GET /api/v1/topics/{topic}/records": SameView(f"/topics/{TOPIC}/records", "payroll record 3"),
    "GET /api/v1/topics/{topic}/records.jsonl": SameView(f"/topics/{TOPIC}/records.jsonl", "payroll record 4"),
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}": SameView(f"/topics/{TOPIC}/records/0/2", "record 2"),
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}/payload": SameView(
        f"/topics/{TOPIC}/records/0/2/payload", "payroll record 2"
    ),
    "GET /api/v1/groups": SameView("/groups", GROUP),
    "GET /api/v1/groups/{name}": SameView("/groups/payroll-joined", '"client"'),
    "GET /api/v1/groups/{name}/lag": SameView(f"/groups/{GROUP}/lag", GROUP),
    "GET /api/v1/timelines": SameView("/timelines", TIMELINE),
    "GET /api/v1/timelines/{name}": SameView(f"/timelines/{TIMELINE}", '"waiting": 4'),
    "GET /api/v1/timelines/{name}/future": SameView(
        f"/timelines/{TIMELINE}/future?from_ms=0&to_ms=9999999999999", '"total": 4'
    ),
    "GET /api/v1/timelines/{name}/messages": SameView(f"/timelines/{TIMELINE}/messages", FIRST),
    "GET /api/v1/timelines/{name}/messages/{id}": SameView(f"/timelines/{TIMELINE}/messages/{FIRST}", FIRST),
    "GET /api/v1/timelines/{name}/messages/{id}/body": SameView(f"/timelines/{TIMELINE}/messages/{FIRST}/body", "tea"),
    "GET /api/v1/pipelines": SameView("/pipelines", "payroll-doomed-pipeline"),
    "GET /api/v1/pipelines/{name}": SameView("/pipelines/payroll-doomed-pipeline", "payroll-doomed-pipeline"),
    "GET /api/v1/sql/tables": SameView("/sql/tables", "messages"),
    "POST /api/v1/sql": SameView("/sql", "payroll record 1", _QUERY),
    "GET /api/v1/cluster": SameView("/cluster", '"broker": 3'),
    "GET /api/v1/cluster/reassignments": SameView("/cluster/reassignments", '"total": 0'),
    "GET /api/v1/cluster/rebalance": SameView("/cluster/rebalance", '"dry_run": true'),
    "GET /api/v1/brokers/{broker}/settings": SameView("/brokers/2/settings", '"broker": 2'),
    "GET /api/v1/me": SameView("/me", "User:admin"),
    "GET /api/v1/security": SameView("/security", '"checks_acls": true'),
    "GET /api/v1/security/rights": SameView(f"/security/rights?principal=User:{VICTIM}&name={TOPIC}", VICTIM),
    "GET /api/v1/users": SameView("/users", VICTIM),
    "GET /api/v1/acls": SameView("/acls", VICTIM),
    "GET /api/v1/quotas": SameView("/quotas", "1000.0"),
    "GET /api/v1/quotas/applied": SameView(f"/quotas/applied?user={VICTIM}", "1000.0"),
    "GET /api/v1/logs": SameView("/logs", '"unreachable_brokers": []'),
    "GET /api/v1/openapi.json": SameView("/openapi.json", "Tidemill"),
}
CHANGES = {each.name: each for each in ROUTES if each.changes}
AUDITED = {
    "POST /api/v1/topics": "topic_created",
    "POST /api/v1/topics/{topic}/partitions": "partitions_created",
    "POST /api/v1/topics/{topic}/delete-records": "records_deleted",
    "PATCH /api/v1/topics/{topic}/settings": "configs_altered",
    "POST /api/v1/topics/{topic}/records": "record_written",
    "POST /api/v1/groups/{name}/offsets": "group_offsets_reset",
    "POST /api/v1/groups/{name}/skip": "group_record_skipped",
    "DELETE /api/v1/groups/{name}/offsets/{topic}": "offsets_deleted",
    "DELETE /api/v1/groups/{name}/members/{member}": "group_member_removed",
    "DELETE /api/v1/groups/{name}": "group_deleted",
    "POST /api/v1/timelines": "timeline_created",
    "PATCH /api/v1/timelines/{name}": "timeline_altered",
    "POST /api/v1/timelines/{name}/cancellations": "timeline_messages_cancelled",
    "POST /api/v1/timelines/{name}/moves": "timeline_messages_moved",
    "POST /api/v1/timelines/{name}/releases": "timeline_leases_released",
    "POST /api/v1/timelines/{name}/retries": "timeline_dead_letters_retried",
    "DELETE /api/v1/timelines/{name}": "timeline_deleted",
    "DELETE /api/v1/pipelines/{name}": "pipeline_forgotten",
    "POST /api/v1/users": "credential_set",
    "PUT /api/v1/users/{user}/password": "credential_set",
    "DELETE /api/v1/users/{user}": "credential_removed",
    "POST /api/v1/acls": "acl_created",
    "POST /api/v1/acls/revocations": "acl_deleted",
    "PUT /api/v1/quotas": "quota_altered",
    "POST /api/v1/quotas/removals": "quota_altered",
    "DELETE /api/v1/topics/{topic}": "topic_deleted",
    "POST /api/v1/brokers/{broker}/clock": "configs_altered",
    "POST /api/v1/cluster/elections": "leader_elected",
    "POST /api/v1/cluster/rebalance": "partition_reassigned",
    "DELETE /api/v1/brokers/{broker}": "broker_unregistered",
}
"""The line of the audit log for each change, in the order in which they are made."""
CLUSTER_ONLY: dict[str, tuple[str, Any]] = {
    "POST /api/v1/timelines/{name}/cancellations": (f"/timelines/{TIMELINE}/cancellations", {"ids": [FIRST]}),
    "POST /api/v1/timelines/{name}/moves": (
        f"/timelines/{TIMELINE}/moves",
        {"ids": [SECOND], "due_ms": 4_000_000_000_000},
    ),
    "POST /api/v1/timelines/{name}/releases": (f"/timelines/{WORKED}/releases", {"ids": [THIRD]}),
    "POST /api/v1/timelines/{name}/retries": (f"/timelines/{DEAD}/retries", {}),
    "POST /api/v1/brokers/{broker}/clock": ("/brokers/2/clock", None),
    "POST /api/v1/cluster/rebalance": ("/cluster/rebalance", None),
    "POST /api/v1/cluster/elections": ("/cluster/elections", None),
    "DELETE /api/v1/brokers/{broker}": (f"/brokers/{LOST}", None),
}
"""Requests that do something only in this cluster; the others are those of tests/support/route_requests.py."""


class FilledCluster:
    """The cluster with data, a member of a group that polls, and a consumer that holds the lease of a message."""

    def __init__(self, cluster: GuardedCluster) -> None:
        self.cluster = cluster
        self.member = fill(cluster)
        self._create()
        self._produce()
        self._timelines: list[Timeline] = []
        with self._timeline(TIMELINE) as opened:
            due = time.time() + 3_600
            opened.schedule([Message(b"tea", due, id=each) for each in MESSAGES])
        self._fail_one()
        worked = self._timeline(WORKED)
        self._timelines.append(worked)
        worked.create()
        worked.schedule([Message(b"tea", time.time(), id=THIRD)])
        self._leases = worked.work()
        assert next(self._leases).id == THIRD

    def _create(self) -> None:
        topics = [
            NewTopic(REPLICATED, 3, 3, config={"retention.ms": "1234567"}),
            NewTopic(LONELY, replica_assignment=[[1]] * 3, num_partitions=3),
        ]
        for future in self.cluster.admin.create_topics(topics).values():
            future.result(WAIT_S)

    def _produce(self) -> None:
        producer = Producer({**self.cluster.kafka, "enable.idempotence": True, "acks": "all"})
        for partition in range(3):
            producer.produce(REPLICATED, b"payroll", b"key", partition=partition)
        assert producer.flush(WAIT_S) == 0

    def _timeline(self, name: str) -> Timeline:
        login = {key: value for key, value in self.cluster.kafka.items() if key != "bootstrap.servers"}
        return Timeline(str(self.cluster.brokers.servers[1]["grpc"]), name, client=login)

    def _fail_one(self) -> None:
        """Make one dead letter."""
        with self._timeline(FAILING) as opened:
            opened.create(max_attempts=1, dead_letter=f"timeline:{DEAD}")
            opened.schedule([Message(b"tea", time.time())])
            for lease in opened.work():
                lease.release()
                break

    def ask(self, number: int, method: str, path: str, body: Any = None) -> Any:
        self.cluster.use(number)
        self.member.poll(0)
        return self.cluster.ask(ADMIN, method, path, body)

    def read(self, number: int, path: str) -> Any:
        answer = self.ask(number, "GET", f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def audited(self, what: str) -> int:
        """How many lines of this kind the brokers have written for the administrator."""
        return sum(each["what"] == what and each["who"] == f"User:{ADMIN}" for each in self.cluster.audit())

    def turn_leaders(self) -> None:
        """Make another replica of a partition its first one; the leader stays."""
        with KafkaClient(self.cluster.kafka) as client:
            place = TopicPartition(REPLICATED, 0)
            replicas = client.carriers([REPLICATED])[place].replicas
            assert client.reassign({place: [*replicas[1:], replicas[0]]}) == {place: None}

    def close(self) -> None:
        self._leases.close()
        for each in self._timelines:
            each.close()
        self.member.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledCluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    with guarded_cluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        made = FilledCluster(cluster)
        try:
            yield made
        finally:
            made.close()


def is_read(access: RouteAccess) -> bool:
    """Whether a route reads something of the cluster for a client. Streams of events do not end."""
    kind = None if access.shapes is None else access.shapes.media_type
    return access.path.startswith("/api/v1/") and kind not in {None, PAGE, STREAM} and not access.changes


def without_moving(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: without_moving(value) for key, value in found.items() if key not in MOVING}
    if isinstance(found, list):
        return [without_moving(each) for each in found]
    return found


def test_every_read_and_every_change_is_listed() -> None:
    assert set(VIEWS) == {each.name for each in ROUTES if is_read(each)}
    assert set(AUDITED) == set(CHANGES)
    assert set(CLUSTER_ONLY) <= set(AUDITED)
    unaudited = {name for name, request in REQUESTS.items() if request.no_audit}
    assert unaudited <= set(CLUSTER_ONLY), "a change that is audited nowhere"


@pytest.mark.parametrize("route", VIEWS)
def test_every_broker_shows_the_same(filled: FilledCluster, route: str) -> None:
    view = VIEWS[route]
    shown: list[str] = []

    def is_same() -> bool:
        shown.clear()
        for number in NUMBERS:
            answer = filled.ask(number, route.split(maxsplit=1)[0], f"/api/v1{view.path}", view.body)
            assert answer.status_code == 200, (route, number, answer.text)
            is_json = answer.headers["content-type"].startswith("application/json")
            shown.append(json.dumps(without_moving(answer.json()), sort_keys=True) if is_json else answer.text)
        return view.shows in shown[0] and shown[0] == shown[1] == shown[2]

    try:
        eventually(is_same, "the brokers differ", within_s=WAIT_S)
    except AssertionError:
        print("\n".join(shown))
        raise


def test_every_change_is_audited_by_one_broker(filled: FilledCluster) -> None:
    """The last test, because it changes what the others look at. The requests go to the brokers in turn."""
    for turn, (route, what) in enumerate(AUDITED.items()):
        prepare(filled, route)
        seen = filled.audited(what)
        request = with_member(filled.cluster, REQUESTS[route])
        path, body = (
            (f"/api/v1{CLUSTER_ONLY[route][0]}", CLUSTER_ONLY[route][1])
            if route in CLUSTER_ONLY
            else (request.path + request.query, request.body)
        )
        answer = filled.ask(NUMBERS[turn % len(NUMBERS)], route.split()[0], path, body)
        assert answer.status_code in {200, 204}, (route, answer.text)
        eventually(lambda: filled.audited(what) > seen, f"{route} is not audited: {answer.text}", within_s=WAIT_S)  # noqa: B023


def prepare(filled: FilledCluster, route: str) -> None:
    """Bring about what the change needs."""
    if route.endswith("elections"):
        filled.turn_leaders()
        eventually(lambda: filled.read(2, "/cluster/rebalance")["total"] > 0, "nothing to elect", within_s=WAIT_S)
    if route.endswith("retries"):
        eventually(lambda: filled.read(2, f"/timelines/{DEAD}")["available"] == 1, "no dead letter", within_s=WAIT_S)
    if route.startswith("DELETE /api/v1/brokers"):
        filled.cluster.brokers.stop(LOST)
        eventually(
            lambda: filled.read(1, "/overview")["unreachable_brokers"] == [LOST], "it still answers", within_s=WAIT_S
        )
