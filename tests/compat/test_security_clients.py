"""Each Kafka client logs in by TLS with SCRAM and by mTLS, works in a group, and is refused what its ACLs refuse.

A client that is refused must say so with its own error: a client that only sees a closed connection tries for ever.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.compat.programs import BUILD_S
from tests.compat.secured_clients import (
    DISTRUSTED,
    GROUP,
    LOGIN,
    NO_CERTIFICATE,
    OK,
    TOPIC,
    UNTRUSTED,
    Aiokafka,
    Confluent,
    KafkaPython,
    Kcat,
    LineProgram,
    SecuredClient,
    franz_go,
    java,
)
from tests.compat.secured_world import (
    DENIED,
    FOREIGN_GROUP,
    MTLS,
    OWN_GROUP,
    READ_ONLY,
    USERS,
    WAYS,
    WRITE_ONLY,
    SecuredWorld,
    secured_world,
    shared_topic,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWorld]:
    with secured_world(tmp_path_factory.mktemp("world")) as running:
        running.add_topics([shared_topic(name, way) for name in CLIENTS for way in WAYS])
        yield running


PYTHON: dict[str, Callable[[], SecuredClient]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "kcat": Kcat,
}
PROGRAMS: dict[str, Callable[[Path], LineProgram]] = {"java": java, "franz-go": franz_go}
CLIENTS = [*PYTHON, *PROGRAMS]


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredClient]:
    if request.param in PYTHON:
        yield PYTHON[request.param]()
        return
    with closing(PROGRAMS[request.param](tmp_path_factory.mktemp("program"))) as program:
        yield program


# The first test with franz-go builds it.
pytestmark = pytest.mark.timeout(BUILD_S + 60)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_logs_in_writes_and_reads_in_a_group(
    world: SecuredWorld, client: SecuredClient, way: str
) -> None:
    login, topic = world.login(way), shared_topic(client.name, way)
    assert client.produce(login, topic) == OK
    assert client.consume(login, topic, f"{OWN_GROUP}{topic}") == OK


@pytest.mark.parametrize("way", WAYS)
def test_acls_refuse_what_they_do_not_allow(world: SecuredWorld, client: SecuredClient, way: str) -> None:
    login, topic = world.login(way), shared_topic(client.name, way)
    refused = {
        "write without WRITE": (TOPIC, client.produce(login, READ_ONLY)),
        "write although denied": (TOPIC, client.produce(login, DENIED)),
        "read without READ": (TOPIC, client.consume(login, WRITE_ONLY, f"{OWN_GROUP}{topic}-2")),
        "join a foreign group": (GROUP, client.consume(login, topic, FOREIGN_GROUP)),
    }
    for what, (kind, outcome) in refused.items():
        assert client.errors[kind] in outcome, what


@pytest.mark.parametrize("way", USERS)
def test_a_wrong_password_is_reported(world: SecuredWorld, client: SecuredClient, way: str) -> None:
    wrong = world.login(way).with_password("wrong")
    assert client.errors[LOGIN] in client.produce(wrong, shared_topic(client.name, way))


def test_a_refused_certificate_is_reported(world: SecuredWorld, client: SecuredClient) -> None:
    topic = shared_topic(client.name, MTLS)
    assert client.errors[UNTRUSTED] in client.produce(world.stranger_login(), topic)
    assert client.errors[NO_CERTIFICATE] in client.produce(world.without_certificate(), topic)


def test_a_client_reports_a_broker_of_another_ca(world: SecuredWorld, client: SecuredClient) -> None:
    assert client.errors[DISTRUSTED] in client.produce(world.distrusting(MTLS), shared_topic(client.name, MTLS))
