"""Queries in a cluster that authenticates by certificates: brokers read from each other, and rights hold everywhere."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.certificates import Authority
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.waiting import eventually

WAIT_S = 60.0
PARTITIONS = 4


class GuardedCluster:
    """Two brokers, and clients with certificates."""

    def __init__(self, brokers: Brokers, authority: Authority) -> None:
        self.brokers, self.authority = brokers, authority
        self.kafka = {
            "bootstrap.servers": ",".join(str(each["SSL"]) for each in brokers.servers.values()),
            "security.protocol": "ssl",
            "ssl.ca.location": authority.path,
            "ssl.certificate.location": authority.issue("/CN=admin", "admin"),
            "ssl.key.location": authority.issue("/CN=admin", "admin"),
        }

    def ask(self, broker: int, name: str, sql: str) -> httpx.Response:
        context = ssl.create_default_context(cafile=self.authority.path)
        context.load_cert_chain(self.authority.issue(f"/CN={name}", name))
        url = f"https://{self.brokers.servers[broker]['http']}/api/v1/sql"
        return httpx.post(url, json={"query": sql}, verify=context, timeout=WAIT_S)

    def rows(self, broker: int, name: str, sql: str) -> list[list[Any]]:
        answer = self.ask(broker, name, sql)
        assert answer.status_code == 200, answer.text
        found: list[list[Any]] = answer.json()["rows"]
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "ssl.client.auth": "required",
        "super.users": "User:CN=admin",
    }
    with running_brokers(count=2, settings=settings, http="127.0.0.1:0") as brokers:
        made = GuardedCluster(brokers, authority)
        fill(made)
        yield made


def fill(cluster: GuardedCluster) -> None:
    admin = AdminClient(cluster.kafka)
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("orders", "secret")]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    producer = Producer(cluster.kafka)
    for name in ("orders", "secret"):
        for partition in range(PARTITIONS):
            producer.produce(name, name.encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0
    for group in ("shop-1", "shop-2", "shop-3", "spies"):
        reader = Consumer({**cluster.kafka, "group.id": group, "enable.auto.commit": False})
        places = [
            TopicPartition(name, partition, 0) for name in ("orders", "secret") for partition in range(PARTITIONS)
        ]
        reader.commit(offsets=places, asynchronous=False)
        reader.close()
    bindings = [
        AclBinding(kind, name, pattern, "User:CN=alice", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in (
            (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourceType.GROUP, "shop-", ResourcePatternType.PREFIXED, AclOperation.DESCRIBE),
        )
    ]
    for future in admin.create_acls(bindings).values():
        future.result(WAIT_S)


@pytest.mark.parametrize("broker", [1, 2])
def test_a_query_sees_the_records_of_all_brokers_that_its_user_may_read(cluster: GuardedCluster, broker: int) -> None:
    records = "SELECT topic, partition, value FROM messages ORDER BY ALL"
    mine = [["orders", partition, "orders"] for partition in range(PARTITIONS)]
    theirs = [["secret", partition, "secret"] for partition in range(PARTITIONS)]
    eventually(lambda: cluster.ask(broker, "alice", records).status_code == 200)  # the ACLs have arrived
    assert cluster.rows(broker, "alice", records) == mine
    assert cluster.rows(broker, "admin", records) == mine + theirs
    assert cluster.ask(broker, "alice", "SELECT * FROM messages WHERE topic = 'secret'").status_code == 403


@pytest.mark.parametrize("broker", [1, 2])
def test_tables_of_other_brokers_leave_out_the_same_rows(cluster: GuardedCluster, broker: int) -> None:
    partitions = "SELECT topic, count() FROM partitions GROUP BY topic ORDER BY topic"
    eventually(lambda: cluster.ask(broker, "alice", partitions).status_code == 200)
    assert cluster.rows(broker, "alice", partitions) == [["orders", PARTITIONS]]
    assert cluster.rows(broker, "admin", partitions) == [["orders", PARTITIONS], ["secret", PARTITIONS]]
    groups = "SELECT DISTINCT group_id, topic FROM consumer_offsets ORDER BY ALL"
    mine = [[f"shop-{number}", "orders"] for number in (1, 2, 3)]
    assert cluster.rows(broker, "alice", groups) == mine
    assert len(cluster.rows(broker, "admin", groups)) == 8
    lag = "SELECT group_id, topic, sum(lag), min(lag_seconds) > 0 FROM consumer_lag GROUP BY ALL ORDER BY ALL"
    assert cluster.rows(broker, "alice", lag) == [[*each, PARTITIONS, True] for each in mine]
