"""How a Kafka broker is reached: its address, and what the client is told beside it, in Kafka's spelling."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.client.raw.errors import InvalidOption
from tidemill.client.raw.options import parse_options
from tidemill.pipelines.core.errors import WrongOption

PATIENCE = {"socket.connection.setup.timeout.ms": "30000"}
"""A pipeline has asked the broker before it starts: one that does not answer later on restarts, and is waited for."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
ELSEWHERE = {
    "bootstrap.servers": "is what --bootstrap says",
    "group.id": "is made of the command and the topic, so that each shows its own lag",
}


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A broker, and how to be let in there."""

    servers: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Has passwords: it is not shown."""

    @property
    def options(self) -> dict[str, str]:
        """What the client of this package is told."""
        return {"bootstrap.servers": self.servers, **self.client}

    @property
    def kafka(self) -> dict[str, str]:
        """What sources and sinks of Spark are told."""
        return {f"kafka.{name}": value for name, value in {**PATIENCE, **self.options}.items()}


def parse_client(servers: str, given: Iterable[str], environment: Mapping[str, str]) -> KafkaBroker:
    """A broker as it is written on a command line: its address, and name=value as often as needed."""
    client = {}
    for each in given:
        name, found, value = each.partition("=")
        if not found or not name:
            raise WrongOption("--client is name=value, such as security.protocol=SASL_SSL")
        if name in ELSEWHERE:
            raise WrongOption(f"--client {name} {ELSEWHERE[name]}")
        try:
            client[name] = filled(value, environment)
        except WrongOption as error:
            raise WrongOption(f"--client {name} {error}") from None
    broker = KafkaBroker(servers, client)
    try:
        parse_options(broker.options)
    except InvalidOption as error:
        raise WrongOption(f"--client: {error}" if client else f"--bootstrap: {error}") from None
    return broker


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with what the environment has for each `${NAME}`, so that no password need be written down."""
    for name in _VARIABLE.findall(text):
        if name not in environment:
            raise WrongOption(f"names ${{{name}}}, which the environment does not have")
    return _VARIABLE.sub(lambda found: environment[found[1]], text)
