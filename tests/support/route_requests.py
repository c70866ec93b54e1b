"""A valid request for every route of the HTTP server, and the resources that the requests name.

A route with another method than GET must have a row here. Another one gets its path with the names below.
"""

import re
from typing import Any, NamedTuple
from urllib.parse import quote

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from tests.support.guarded_console import ADMIN, WAIT_S, ConsoleClients
from tests.support.pipeline_reports import pipeline_report, send_report
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.servers.http.core.route_access import RouteAccess

TOPIC, GROUP, TIMELINE, VICTIM = "payroll", "payroll-readers", "payroll-reminders", "payroll-clerk"
MARK = "payroll"
"""What the names of all resources have, so that an answer that mentions one is found."""
RECORDS = 5
HOUR_MS = 3_600_000
FIRST_ACL = {
    "principal": f"User:{VICTIM}",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "name": TOPIC,
    "pattern": "literal",
    "host": "*",
}


class RouteRequest(NamedTuple):
    """One request. `no_audit` says why it leaves no line in the audit log."""

    path: str
    body: Any = None
    query: str = ""
    no_audit: str = ""
    status: int = 0
    """The status for a client that may do everything, if it is not 2xx."""


NO_MESSAGE = "no message of this id exists; test_every_broker.py has real ones"
ONE_BROKER = "one broker has nothing to move; test_every_broker.py has real moves"
REQUESTS: dict[str, RouteRequest] = {
    "GET /topics/{topic}/records/{partition}/{offset}": RouteRequest(f"/topics/{TOPIC}/records/0/1"),
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}": RouteRequest(f"/api/v1/topics/{TOPIC}/records/0/1"),
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}/payload": RouteRequest(
        f"/api/v1/topics/{TOPIC}/records/0/1/payload"
    ),
    "GET /timelines/{name}/messages/{id}": RouteRequest(f"/timelines/{TIMELINE}/messages/none", status=404),
    "GET /api/v1/timelines/{name}/messages/{id}": RouteRequest(f"/api/v1/timelines/{TIMELINE}/messages/1", status=404),
    "GET /api/v1/timelines/{name}/messages/{id}/body": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/messages/none/body", status=404
    ),
    "GET /api/v1/timelines/{name}/future": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/future", query="?from_ms=0&to_ms=9999999999"
    ),
    "GET /api/v1/security/rights": RouteRequest("/api/v1/security/rights", query=f"?name={TOPIC}"),
    "GET /api/v1/quotas/applied": RouteRequest("/api/v1/quotas/applied", query="?user=x"),
    "GET /static/{name}": RouteRequest("/static/none", status=404),
    "POST /api/v1/topics": RouteRequest("/api/v1/topics", {"topic": "payroll-new", "partitions": 1}),
    "DELETE /api/v1/topics/{topic}": RouteRequest("/api/v1/topics/payroll-doomed"),
    "POST /api/v1/topics/{topic}/partitions": RouteRequest(f"/api/v1/topics/{TOPIC}/partitions", {"partitions": 3}),
    "POST /api/v1/topics/{topic}/delete-records": RouteRequest(
        f"/api/v1/topics/{TOPIC}/delete-records", {"partitions": [{"partition": 0, "before": 1}]}
    ),
    "PATCH /api/v1/topics/{topic}/settings": RouteRequest(
        f"/api/v1/topics/{TOPIC}/settings", {"config": {"retention.ms": "86400000"}}
    ),
    "POST /api/v1/topics/{topic}/records": RouteRequest(
        f"/api/v1/topics/{TOPIC}/records", {"partition": 0, "value": {"format": "text", "data": "tea"}}
    ),
    "DELETE /api/v1/groups/{name}": RouteRequest("/api/v1/groups/payroll-doomed"),
    "POST /api/v1/groups/{name}/offsets": RouteRequest(
        f"/api/v1/groups/{GROUP}/offsets", {"target": {"to": "offset", "offset": 2}, "topics": [{"topic": TOPIC}]}
    ),
    "POST /api/v1/groups/{name}/skip": RouteRequest(
        f"/api/v1/groups/{GROUP}/skip", {"topic": TOPIC, "partition": 0, "offset": 2}
    ),
    "DELETE /api/v1/groups/{name}/offsets/{topic}": RouteRequest(f"/api/v1/groups/payroll-forgetful/offsets/{TOPIC}"),
    "DELETE /api/v1/groups/{name}/members/{member}": RouteRequest("/api/v1/groups/payroll-joined/members/{member}"),
    "POST /api/v1/timelines": RouteRequest("/api/v1/timelines", {"timeline": "payroll-new-timeline"}),
    "PATCH /api/v1/timelines/{name}": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}", {"settings": {"lease_ms": "60000"}}
    ),
    "DELETE /api/v1/timelines/{name}": RouteRequest("/api/v1/timelines/payroll-doomed-timeline"),
    "POST /api/v1/timelines/{name}/cancellations": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/cancellations", {"ids": ["none"]}, no_audit=NO_MESSAGE
    ),
    "POST /api/v1/timelines/{name}/moves": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/moves", {"ids": ["none"], "due_ms": HOUR_MS}, no_audit=NO_MESSAGE
    ),
    "POST /api/v1/timelines/{name}/releases": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/releases", {"ids": ["none"]}, no_audit=NO_MESSAGE
    ),
    "POST /api/v1/timelines/{name}/retries": RouteRequest(
        f"/api/v1/timelines/{TIMELINE}/retries", {"ids": ["none"]}, no_audit=NO_MESSAGE
    ),
    "GET /pipelines/{name}": RouteRequest("/pipelines/payroll-doomed-pipeline"),
    "GET /api/v1/pipelines/{name}": RouteRequest("/api/v1/pipelines/payroll-doomed-pipeline"),
    "DELETE /api/v1/pipelines/{name}": RouteRequest("/api/v1/pipelines/payroll-doomed-pipeline"),
    "POST /api/v1/cluster/rebalance": RouteRequest("/api/v1/cluster/rebalance", no_audit=ONE_BROKER),
    "POST /api/v1/cluster/elections": RouteRequest("/api/v1/cluster/elections", no_audit=ONE_BROKER),
    "DELETE /api/v1/brokers/{broker}": RouteRequest("/api/v1/brokers/7", no_audit="there is no broker 7", status=404),
    "POST /api/v1/brokers/{broker}/clock": RouteRequest("/api/v1/brokers/0/clock"),
    "POST /api/v1/users": RouteRequest("/api/v1/users", {"user": "payroll-new-user", "generate": True}),
    "PUT /api/v1/users/{user}/password": RouteRequest(f"/api/v1/users/{VICTIM}/password", {"generate": True}),
    "DELETE /api/v1/users/{user}": RouteRequest("/api/v1/users/payroll-doomed-user"),
    "POST /api/v1/acls": RouteRequest(
        "/api/v1/acls", {"principals": [VICTIM], "producer": True, "topics": ["payroll-new"]}
    ),
    "POST /api/v1/acls/revocations": RouteRequest("/api/v1/acls/revocations", {"acls": [FIRST_ACL]}),
    "PUT /api/v1/quotas": RouteRequest(
        "/api/v1/quotas", {"entity": {"user": VICTIM}, "quotas": {"consumer_byte_rate": 99}}
    ),
    "POST /api/v1/quotas/removals": RouteRequest("/api/v1/quotas/removals", {"entity": {"user": "payroll-doomed"}}),
    "POST /api/v1/sql": RouteRequest("/api/v1/sql", {"query": f"SELECT * FROM messages WHERE topic = '{TOPIC}'"}),
    "POST /sql/chart": RouteRequest(
        "/sql/chart", {"kind": "bar", "label_name": "x", "labels": ["a"], "value_name": "y", "values": [1]}
    ),
}
NAMES = {"topic": TOPIC, "name": TIMELINE, "broker": "0", "partition": "0", "offset": "0"}


def request_of(access: RouteAccess) -> RouteRequest:
    """A request to a route."""
    known = REQUESTS.get(access.name)
    if known is not None:
        return known
    names = {**NAMES, "name": GROUP} if "/groups/" in access.path else NAMES
    return RouteRequest(re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "none"), access.path))


def fill(console: ConsoleClients) -> Consumer:
    """Make the resources. The consumer that is returned is a member of a group."""
    topics = [NewTopic(TOPIC, 2, 1), NewTopic("payroll-doomed", 1, 1)]
    for future in console.admin.create_topics(topics).values():
        future.result(WAIT_S)
    producer = Producer(console.kafka)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"payroll record %d" % number, b"key", partition=0)
    assert producer.flush(WAIT_S) == 0
    for group in (GROUP, "payroll-doomed", "payroll-forgetful"):
        reader = Consumer({**console.kafka, "group.id": group, "enable.auto.commit": False})
        reader.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        reader.close()
    for timeline in (TIMELINE, "payroll-doomed-timeline"):
        console.good(ADMIN, "POST", "/api/v1/timelines", {"timeline": timeline})
    with KafkaClient(console.kafka) as client:
        send_report(client, pipeline_report("payroll-doomed-pipeline", TOPIC, state="stopped"))
    console.add_users([VICTIM, "payroll-doomed-user"])
    console.grant(VICTIM, operations=["read"], topics=[TOPIC])
    for name in (VICTIM, "payroll-doomed"):
        change = {"entity": {"user": name}, "quotas": {"producer_byte_rate": 1000}}
        console.good(ADMIN, "PUT", "/api/v1/quotas", change)
    member = Consumer({**console.kafka, "group.id": "payroll-joined", "auto.offset.reset": "earliest"})
    member.subscribe([TOPIC])
    eventually(lambda: member.poll(0.1) is not None, "the member reads")
    return member


def with_member(console: ConsoleClients, request: RouteRequest) -> RouteRequest:
    """The request with the id of the member, which is known only now."""
    if "{member}" not in request.path:
        return request
    found = console.good(ADMIN, "GET", "/api/v1/groups/payroll-joined")["members"]
    return request._replace(path=request.path.replace("{member}", quote(found[0]["member"], safe="")))


def state_of(console: ConsoleClients) -> dict[str, Any]:
    """Everything that a refused request must not change."""
    paths = (
        f"/api/v1/topics/{TOPIC}",
        "/api/v1/timelines",
        f"/api/v1/timelines/{TIMELINE}",
        "/api/v1/users",
        "/api/v1/acls",
        "/api/v1/quotas",
    )
    found = {path: console.good(ADMIN, "GET", path) for path in paths}
    found[f"/api/v1/timelines/{TIMELINE}"].pop("now_ms")
    topics = console.good(ADMIN, "GET", "/api/v1/topics")["topics"]
    found["topics"] = sorted((each["topic"], each["partitions"], each["records"]) for each in topics)
    groups = console.good(ADMIN, "GET", "/api/v1/groups")["groups"]
    found["groups"] = sorted((each["group"], each["members"]) for each in groups)
    found["committed"] = [
        each["committed"] for each in console.good(ADMIN, "GET", f"/api/v1/groups/{GROUP}")["partitions"]
    ]
    settings = console.good(ADMIN, "GET", f"/api/v1/topics/{TOPIC}/settings")["settings"]
    found["settings"] = {each["name"]: each["value"] for each in settings}
    found["can log in"] = console.ask(VICTIM, "GET", "/api/v1/me").status_code
    return found
