"""The broker that a command talks to, through the Kafka client that users run in production."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidemill.cli.problem import CommandFailed, WrongUse
from tidemill.model.errors import InvalidConfig
from tidemill.settings import parse_address

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 30.0
CONNECT_S = 3.0
PARTITIONS_MAX, COPIES_MAX = 100_000, 10_000
"""What librdkafka takes; what a broker takes it says itself."""

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="TIDEMILL_KAFKA", help="Broker to talk to: host:port[,host:port]."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def client_settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Settings of a client that keeps quiet about connections: the command says it in one line itself."""
    return {"bootstrap.servers": bootstrap, "log_level": 0, "logger": _silent_logger(), **more}


def _silent_logger() -> Any:
    import logging

    logger = logging.getLogger("tidemill.cli.client")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def admin(bootstrap: str, settings: Mapping[str, str] | None = None) -> "AdminClient":
    """An admin client of a broker that answers.

    Keep a name for it until its futures are answered: they are forgotten when the client goes.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reach(bootstrap)
    client = AdminClient(client_settings(bootstrap, **(settings or {})))
    try:
        client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailed(
            f"{bootstrap} accepts connections but does not answer as a Kafka broker ({error.args[0].str()}); "
            "is it the address of the Kafka door?"
        ) from None
    return client


def reach(bootstrap: str) -> None:
    """Say at once that nobody listens: the Kafka client itself would go on trying."""
    import socket

    for text in bootstrap.split(","):
        try:
            address = parse_address(text)
        except InvalidConfig as error:
            raise WrongUse(f"--bootstrap: {error}") from None
        try:
            socket.create_connection(address, CONNECT_S).close()
        except OSError:
            continue
        return
    raise CommandFailed(f"no broker answers at {bootstrap}; start one with: tidemill serve")


@contextmanager
def told(what: str) -> Iterator[None]:
    """A refusal of the Kafka client becomes one line that begins with what was tried."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise CommandFailed(f"{what}: {error.args[0].str()}") from None
    except TimeoutError:
        raise CommandFailed(f"{what}: no answer within {TIMEOUT_S:g} s") from None


def answer(future: "Future[T]", what: str) -> T:
    """The future's result."""
    with told(what):
        return future.result(TIMEOUT_S)


def describe_topic(client: "AdminClient", topic: str) -> Any:
    """A topic that must exist; asking does not create it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    with told(f"describe {topic}"):
        try:
            return client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise no_topic(topic) from None
            raise


def partitions_of(client: "AdminClient", topic: str) -> list[int]:
    """The partitions of a topic that must exist."""
    return sorted(partition.id for partition in describe_topic(client, topic).partitions)


def check_partition(topic: str, partition: int, partitions: list[int]) -> None:
    """Refuse a partition that the topic does not have."""
    if partition not in partitions:
        raise CommandFailed(f"{topic} has partitions 0 to {partitions[-1]}, not {partition}")


def no_topic(topic: str) -> CommandFailed:
    """The one line that a missing topic deserves."""
    return CommandFailed(f"there is no topic {topic}; create it with: tidemill topic create {topic}")


def pairs(items: list[str], what: str) -> Mapping[str, str]:
    """`name=value` arguments as a mapping."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUse(f"{what} {item!r} is not name=value")
        found[name] = value
    return found
