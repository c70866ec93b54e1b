"""The broker that a command talks to, through the Kafka client that users run in production."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.settings import CLIENT_VARIABLE

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidemill.pipelines.core.broker import KafkaBroker

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 30.0
CONNECT_S = 3.0
GREET_S = 5.0
"""How long a broker has to answer where others can be asked."""
PARTITIONS_MAX, COPIES_MAX = 100_000, 10_000
"""What librdkafka takes; what a broker takes it says itself."""

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="TIDEMILL_KAFKA",
        show_default=DEFAULT_BOOTSTRAP,
        help="Broker to talk to: host:port[,host:port].",
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME=VALUE|FILE",
        help="How to be let in where there are TLS and logins: a setting of Kafka's clients such as "
        "security.protocol=SASL_SSL, or a file of such lines (others in it are left alone); as often as needed, after "
        f"that of {CLIENT_VARIABLE}. ${{NAME}} in a value is taken from the environment.",
    ),
]


def broker_at(
    bootstrap: str | None, client: list[str] | None, *, understood: Collection[str] | None = None
) -> "KafkaBroker":
    """The broker of --bootstrap and --client; without more that is `understood`, --client says how to be let in."""
    from os import environ
    from pathlib import Path

    from tidemill.client.kafka.options import LOGIN_NAMES
    from tidemill.pipelines.core.broker import parse_client
    from tidemill.pipelines.core.errors import WrongOption

    given = [environ[CLIENT_VARIABLE]] if environ.get(CLIENT_VARIABLE) else []
    try:
        return parse_client(
            bootstrap,
            [*given, *(client or ())],
            environ,
            default=DEFAULT_BOOTSTRAP,
            understood=understood or LOGIN_NAMES,
            read=lambda name: Path(name).expanduser().read_text(encoding="utf-8"),
        )
    except WrongOption as error:
        raise WrongUse(str(error)) from None


def client_settings(broker: "KafkaBroker", **more: Any) -> dict[str, Any]:
    """Settings of a client that keeps quiet about connections: the command says it in one line itself."""
    from tidemill.cli.librdkafka import librdkafka_settings
    from tidemill.client.kafka.options import parse_options

    settings = {"bootstrap.servers": broker.servers, **librdkafka_settings(parse_options(broker.options))}
    if "client.id" in broker.client:
        settings["client.id"] = broker.client["client.id"]
    return {**settings, "log_level": 0, "logger": _silent_logger(), **more}


def _silent_logger() -> Any:
    import logging

    logger = logging.getLogger("tidemill.cli.client")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def admin(broker: "KafkaBroker") -> "AdminClient":
    """An admin client of a broker that answers.

    Keep a name for it until its futures are answered: they are forgotten when the client goes.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reach(broker)
    client = AdminClient(client_settings(broker))
    try:
        client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailed(f"{broker.servers} lets us in but does not answer: {error.args[0].str()}") from None
    return client


def reach(broker: "KafkaBroker") -> None:
    """Say at once that nobody listens, or that we are not let in: Kafka clients themselves would go on trying."""
    import socket

    from tidemill.client.kafka.options import parse_addresses

    refusal: CommandFailed | None = None
    addresses = parse_addresses(broker.servers)
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_S).close()
            _let_in(broker, str(address), GREET_S if address != addresses[-1] else TIMEOUT_S)
        except OSError:
            continue
        except CommandFailed as error:  # another one may know us
            refusal = refusal or error
        else:
            return
    raise refusal or CommandFailed(f"no broker answers at {broker.servers}; start one with: tidemill serve")


def _let_in(broker: "KafkaBroker", server: str, patience_s: float) -> None:
    """A listener that wants a login closes the connection when it is asked something without one."""
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.client.kafka.errors import ConnectionLost

    waiting = {"request.timeout.ms": str(int(patience_s * 1000))}
    try:
        with KafkaClient({**waiting, **broker.options, "bootstrap.servers": server}) as client:
            client.greet()
    except ConnectionLost as error:
        advice = "" if "security.protocol" in str(error) else "; does it ask for a login, or for another one?"
        raise CommandFailed(f"{error}{advice} See --client") from None
    except ClientError as error:
        raise CommandFailed(str(error)) from None


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
