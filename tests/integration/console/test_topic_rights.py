"""The pages and the API of topics show and change what the ACLs of the client allow."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.console_topics import API, WAIT_S, names, page

from tidemill.testing import Broker

PASSWORD = "a-long-password"
SETTINGS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
GRANTS = {
    "viewer": (AclOperation.DESCRIBE,),
    "auditor": (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    "reader": (AclOperation.READ,),
    "owner": (AclOperation.ALL,),
    "stranger": (),
}
CHANGES = ("delete-topic", "add-partitions", "delete-all-records")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS, flags={"grpc": "none"}, admin_password=PASSWORD) as running:
        admin = AdminClient(
            {
                "bootstrap.servers": running.bootstrap_servers,
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "admin",
                "sasl.password": PASSWORD,
            }
        )
        made = admin.create_topics([NewTopic("orders", 2, 1), NewTopic("secret", 1, 1)])
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        users = [UserScramCredentialUpsertion(name, credential, PASSWORD.encode()) for name in GRANTS]
        bindings = [binding(name, "orders", each) for name, granted in GRANTS.items() for each in granted]
        bindings.append(binding("owner", "mine.new", AclOperation.CREATE))
        for work in (made, admin.alter_user_scram_credentials(users), admin.create_acls(bindings)):
            for future in work.values():
                future.result(WAIT_S)
        yield running


def binding(user: str, topic: str, operation: AclOperation) -> AclBinding:
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, topic, literal, f"User:{user}", "*", operation, allow)


def client_of(broker: Broker, user: str) -> httpx.Client:
    return httpx.Client(base_url=broker.http, auth=(user, PASSWORD), timeout=WAIT_S)


def test_a_list_has_the_topics_that_the_client_may_describe(broker: Broker) -> None:
    for user in GRANTS:
        with client_of(broker, user) as client:
            assert names(client) == ([] if user == "stranger" else ["orders"])
            text = page(client, "/topics")
            assert ("create-topic" in text) == (user == "owner")
            assert "secret" not in text


def test_a_topic_that_the_client_may_not_describe_is_refused(broker: Broker) -> None:
    for user, topic in (("stranger", "orders"), ("viewer", "secret"), ("viewer", "missing")):
        with client_of(broker, user) as client:
            for view in ("", "/partitions", "/settings", "/groups", "/producers"):
                assert "may not DESCRIBE TOPIC" in page(client, f"/topics/{topic}{view}", 403)
            assert client.get(f"{API}/{topic}/history").status_code == 403


def test_settings_are_shown_to_clients_that_may_describe_them(broker: Broker) -> None:
    for user in ("viewer", "auditor", "reader", "owner"):
        with client_of(broker, user) as client:
            text = page(client, "/topics/orders/settings")
            sees_settings = user in {"auditor", "owner"}
            assert ("retention.ms" in text) == sees_settings
            assert ("You may not see the settings" in text) != sees_settings
            assert ("edit-setting" in text) == (user == "owner")
            assert ("retention.ms" in page(client, "/topics/orders")) == sees_settings
            [row] = client.get(API).json()["topics"]
            assert row["cleanup_policy"] == ("delete" if sees_settings else None)
            assert client.get(f"{API}/orders/settings").status_code == (200 if sees_settings else 403)


def test_producers_are_shown_to_clients_that_may_read(broker: Broker) -> None:
    for user in ("viewer", "reader", "owner"):
        with client_of(broker, user) as client:
            text = page(client, "/topics/orders/producers")
            assert ("You may not see the producers" in text) == (user == "viewer")


def test_changes_are_shown_and_made_for_clients_with_their_rights(broker: Broker) -> None:
    for user in ("viewer", "auditor", "reader"):
        with client_of(broker, user) as client:
            text = page(client, "/topics/orders/partitions")
            assert not [each for each in CHANGES if f'"{each}"' in text]
            assert client.post(f"{API}/orders/partitions", json={"partitions": 3}).status_code == 403
            assert client.delete(f"{API}/orders").status_code == 403
            changed = client.patch(f"{API}/orders/settings", json={"config": {"retention.ms": "5"}})
            assert changed.status_code == 403
            body = {"partitions": [{"partition": 0, "before": 0}]}
            assert client.post(f"{API}/orders/delete-records", json=body).status_code == 403
            assert client.post(API, json={"topic": "mine.new"}).status_code == 403
    with client_of(broker, "owner") as client:
        text = page(client, "/topics/orders/partitions")
        assert [each for each in CHANGES if f'"{each}"' in text] == list(CHANGES)
        assert client.post(f"{API}/orders/partitions", json={"partitions": 3}).status_code == 204
        assert client.patch(f"{API}/orders/settings", json={"config": {"retention.ms": "60000"}}).status_code == 200
        assert client.post(API, json={"topic": "mine.new"}).status_code == 200
        assert client.post(API, json={"topic": "others"}).status_code == 403


def test_pages_need_a_login(broker: Broker) -> None:
    with httpx.Client(base_url=broker.http, timeout=WAIT_S) as client:
        for path in ("/topics", "/topics/orders", "/topics/orders/settings"):
            answer = client.get(path, headers={"accept": "text/html"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
