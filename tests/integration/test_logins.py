"""Clients log in by SCRAM and PLAIN over TLS, and do what their ACLs allow."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from tests.support.certificates import Authority
from tests.support.password_users import set_password

from tidemill.testing import Broker

TIMEOUT_S = 20.0
LOGIN = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings=settings, admin_password="admin-password") as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker, authority: Authority) -> AdminClient:
    made = AdminClient(login(broker, authority, "admin", "admin-password"))
    for name, mechanism in (("alice", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")):
        set_password(made, name, f"{name}-password", LOGIN[mechanism])
    return made


def login(
    broker: Broker, authority: Authority, name: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listener("SASL_SSL"),
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": authority.path,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }


def grant(admin: AdminClient, user: str, topic: str, operation: AclOperation) -> AclBinding:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([binding])[binding].result(TIMEOUT_S)
    return binding


def produced(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """The error of one record, or None."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    producer.produce(topic, b"tea", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return errors[0]


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [("admin", "SCRAM-SHA-256"), ("admin", "SCRAM-SHA-512"), ("admin", "PLAIN"), ("alice", "SCRAM-SHA-256")],
)
def test_the_right_password_logs_in(
    broker: Broker, authority: Authority, admin: AdminClient, name: str, mechanism: str
) -> None:
    client = AdminClient(login(broker, authority, name, f"{name}-password", mechanism))
    assert client.list_topics(timeout=TIMEOUT_S).brokers


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("mallory", "alice-password"), ("alice", "")])
def test_a_wrong_login_is_refused(
    broker: Broker, authority: Authority, admin: AdminClient, name: str, password: str, mechanism: str
) -> None:
    reasons: list[KafkaError] = []
    settings = login(broker, authority, name, password or "a", mechanism)
    client = AdminClient({**settings, "error_cb": reasons.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1.0)
    client.poll(1.0)
    assert KafkaError._AUTHENTICATION in {each.code() for each in reasons}


def test_a_mechanism_that_the_user_has_no_credential_for_is_refused(
    broker: Broker, authority: Authority, admin: AdminClient
) -> None:
    with pytest.raises(KafkaException):
        AdminClient(login(broker, authority, "bob", "bob-password", "SCRAM-SHA-256")).list_topics(timeout=1.0)


def test_acls_decide_what_a_user_may_do(broker: Broker, authority: Authority, admin: AdminClient) -> None:
    mine = login(broker, authority, "bob", "bob-password", "SCRAM-SHA-512")
    assert admin.list_topics("orders", timeout=TIMEOUT_S)
    refused = produced(mine, "orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    binding = grant(admin, "bob", "orders", AclOperation.WRITE)
    assert produced(mine, "orders") is None
    assert read_one(mine, "orders").code() in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
    for deleted in admin.delete_acls([_filter(binding)]).values():
        assert deleted.result(TIMEOUT_S) == [binding]
    again = produced(mine, "orders")
    assert again is not None
    assert again.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_changed_password_counts_at_once(broker: Broker, authority: Authority, admin: AdminClient) -> None:
    set_password(admin, "carol", "first")
    first = login(broker, authority, "carol", "first", "PLAIN")
    assert AdminClient(first).list_topics(timeout=TIMEOUT_S).brokers
    set_password(admin, "carol", "second")
    with pytest.raises(KafkaException):
        AdminClient(first).list_topics(timeout=1.0)
    second = login(broker, authority, "carol", "second", "PLAIN")
    assert AdminClient(second).list_topics(timeout=TIMEOUT_S).brokers
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["carol"].result(TIMEOUT_S)
    with pytest.raises(KafkaException):
        AdminClient(second).list_topics(timeout=1.0)


def test_described_credentials_have_no_secrets(admin: AdminClient) -> None:
    found = admin.describe_user_scram_credentials(["alice"])["alice"].result(TIMEOUT_S)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    assert set(admin.describe_user_scram_credentials().result(TIMEOUT_S)) >= {"admin", "alice", "bob"}


def test_an_ordinary_user_cannot_add_users(broker: Broker, authority: Authority, admin: AdminClient) -> None:
    client = AdminClient(login(broker, authority, "alice", "alice-password"))
    with pytest.raises(KafkaException) as caught:
        set_password(client, "eve", "eve")
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def read_one(settings: dict[str, Any], topic: str) -> KafkaError:
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found = consumer.poll(TIMEOUT_S)
        assert found is not None
        error = found.error()
        assert error is not None
        return error
    finally:
        consumer.close()


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
