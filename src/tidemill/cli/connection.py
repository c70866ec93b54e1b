"""The broker that a command talks to, through the Kafka client that users run in production."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidemill.cli.problem import CommandFailed

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 15.0
REACH_TIMEOUT_S = 5.0

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


def unreachable(bootstrap: str) -> CommandFailed:
    """The one line that a missing broker deserves."""
    return CommandFailed(f"no broker answers at {bootstrap}; start one with: tidemill serve")


def admin(bootstrap: str) -> "AdminClient":
    """An admin client of a broker that answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(client_settings(bootstrap))
    try:
        client.list_topics(timeout=REACH_TIMEOUT_S)
    except KafkaException:
        raise unreachable(bootstrap) from None
    return client


def answer(future: "Future[T]", what: str) -> T:
    """The future's result; a refusal becomes one line that begins with what was tried."""
    from confluent_kafka import KafkaException

    try:
        return future.result(TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailed(f"{what}: {error.args[0].str()}") from None
    except TimeoutError:
        raise CommandFailed(f"{what}: no answer within {TIMEOUT_S:g} s") from None


def partitions_of(client: "AdminClient", topic: str) -> list[int]:
    """The partitions of a topic that must exist; asking does not create it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    try:
        described = client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise no_topic(topic) from None
        raise CommandFailed(f"describe {topic}: {error.args[0].str()}") from None
    return sorted(partition.id for partition in described.partitions)


def no_topic(topic: str) -> CommandFailed:
    """The one line that a missing topic deserves."""
    return CommandFailed(f"there is no topic {topic}; create it with: tidemill topic create {topic}")


def pairs(items: list[str], what: str, check: Callable[[str], object] = lambda _: None) -> Mapping[str, str]:
    """`name=value` arguments as a mapping."""
    from tidemill.cli.problem import WrongUse

    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUse(f"{what} {item!r} is not name=value")
        check(name)
        found[name] = value
    return found
