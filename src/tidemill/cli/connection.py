"""Connects commands to a broker through the Kafka client that users run in production."""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.output import hint
from tidemill.settings import CLIENT_VARIABLE

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    from tidemill.pipelines.spec.core.broker import KafkaBroker

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 30.0
CONNECT_S = 3.0
GREET_S = 5.0
"""Timeout of the first request to a broker when there are other addresses to try."""
PARTITIONS_MAX, COPIES_MAX = 100_000, 10_000
"""The limit of librdkafka. A broker reports its own limit."""

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="TIDEMILL_BOOTSTRAP",
        show_default=DEFAULT_BOOTSTRAP,
        help="Broker to connect to: host:port[,host:port].",
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME=VALUE|FILE",
        help="A Kafka client setting for TLS and login such as security.protocol=SASL_SSL, or a file of such lines "
        f"(other lines are ignored). Repeatable; applied after {CLIENT_VARIABLE}. "
        "${NAME} in a value is replaced from the environment.",
    ),
]


def broker_at(
    bootstrap: str | None,
    client: list[str] | None,
    *,
    understood: Collection[str] | None = None,
    check: Callable[[Mapping[str, str]], object] | None = None,
) -> "KafkaBroker":
    """The broker of --bootstrap and --client. `understood` are the allowed client settings, by default the login.

    `check` rejects wrong settings; by default it is that of the Kafka client.
    """
    from os import environ
    from pathlib import Path

    from tidemill.client.kafka.options import LOGIN_NAMES, SECRET_NAMES, parse_options
    from tidemill.pipelines.errors import WrongOption
    from tidemill.pipelines.spec.core.broker import parse_client

    for name, _, value in (item.partition("=") for item in client or ()):
        if name.strip() in SECRET_NAMES and value and "${" not in value:
            hint(f"warning: other users of this machine can see {name} on the command line; use a file, or ${{NAME}}")
    given = [environ[CLIENT_VARIABLE]] if environ.get(CLIENT_VARIABLE) else []
    try:
        return parse_client(
            bootstrap,
            [*given, *(client or ())],
            environ,
            default=DEFAULT_BOOTSTRAP,
            understood=understood or LOGIN_NAMES,
            read=lambda name: Path(name).expanduser().read_text(encoding="utf-8"),
            check=check or parse_options,
        )
    except WrongOption as error:
        raise WrongUse(str(error)) from None


def client_settings(broker: "KafkaBroker", **more: Any) -> dict[str, Any]:
    """Client settings with logging off, because the command reports connection errors itself."""
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
    """An admin client, after a check that the broker answers.

    Keep a reference to it until its futures are done, because they are dropped with the client.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reach(broker)
    client = AdminClient(client_settings(broker))
    try:
        client.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailed(
            f"{broker.servers} accepts the connection but does not answer: {error.args[0].str()}"
        ) from None
    return client


def reach(broker: "KafkaBroker") -> None:
    """Fail at once when no broker listens or the login is rejected: Kafka clients would keep retrying."""
    import socket

    from tidemill.client.kafka.options import parse_addresses

    refusal: CommandFailed | None = None
    addresses = parse_addresses(broker.servers)
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_S).close()
            _check_login(broker, str(address), GREET_S if address != addresses[-1] else TIMEOUT_S)
        except OSError:
            continue
        except CommandFailed as error:  # another address may accept the login
            refusal = refusal or error
        else:
            return
    raise refusal or CommandFailed(f"no broker answers at {broker.servers}; start one with: tidemill serve")


def _check_login(broker: "KafkaBroker", server: str, patience_s: float) -> None:
    """Send a first request. A listener that requires a login closes a connection without one."""
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.client.kafka.errors import ConnectionLost

    waiting = {"request.timeout.ms": str(int(patience_s * 1000))}
    try:
        with KafkaClient({**waiting, **broker.options, "bootstrap.servers": server}) as client:
            client.greet()
    except ConnectionLost as error:
        advice = "" if "security.protocol" in str(error) else "; check whether it requires a login"
        raise CommandFailed(f"{error}{advice}; see --client") from None
    except ClientError as error:
        raise CommandFailed(str(error)) from None


def reason_of(error: "KafkaError") -> str:
    """The text of an error, with the next step after a refusal."""
    from tidemill.model.errors import AUTHORIZATION_CODES

    advice = "; an administrator can allow it with: tidemill acl grant" if error.code() in AUTHORIZATION_CODES else ""
    return f"{error.str()}{advice}"


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Turn an error of the Kafka client into one line that starts with the failed operation."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise CommandFailed(f"{what}: {reason_of(error.args[0])}") from None
    except TimeoutError:
        raise CommandFailed(f"{what}: no answer within {TIMEOUT_S:g} s") from None


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn an error of a broker or of this package's client into one line that starts with the failed operation."""
    from tidemill.client.kafka import ClientError
    from tidemill.model.errors import KafkaError

    try:
        yield
    except (KafkaError, ClientError) as error:
        text = str(error)
        raise CommandFailed(text if text.startswith(what) else f"{what}: {text}") from None


def answer(future: "Future[T]", what: str) -> T:
    """The future's result, or CommandFailed."""
    with kafka_errors(what):
        return future.result(TIMEOUT_S)


def describe_topic(client: "AdminClient", topic: str) -> Any:
    """Describe a topic that must exist. The request does not create it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    with kafka_errors(f"describe {topic}"):
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
    """Reject a partition that the topic does not have."""
    if partition not in partitions:
        raise CommandFailed(f"{topic} has partitions 0 to {partitions[-1]}, not {partition}")


def no_topic(topic: str) -> CommandFailed:
    """The error for a missing topic."""
    return CommandFailed(f"there is no topic {topic}; create it with: tidemill topic create {topic}")


def pairs(items: list[str], what: str) -> Mapping[str, str]:
    """Parse `name=value` arguments into a mapping."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUse(f"{what} {item!r} is not name=value")
        found[name] = value
    return found
