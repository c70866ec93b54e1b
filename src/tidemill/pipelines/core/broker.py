"""How a Kafka broker is reached: its address, and what the client is told beside it, in Kafka's spelling."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import LOGIN_NAMES, PATIENCE_NAMES, REFUSED, parse_options
from tidemill.pipelines.core.errors import WrongOption
from tidemill.pipelines.core.properties import parse_properties

PATIENCE = {"socket.connection.setup.timeout.ms": "30000"}
"""A pipeline has asked the broker before it starts: one that does not answer later on restarts, and is waited for."""
SERVERS, GROUP = "bootstrap.servers", "group.id"
PIPELINE_NAMES = (
    LOGIN_NAMES
    | PATIENCE_NAMES
    | {
        "isolation.level",
        "compression.type",
        "compression.gzip.level",
        "compression.zstd.level",
        "batch.size",
        "transaction.timeout.ms",
    }
)
"""What a pipeline makes use of."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
ELSEWHERE = {
    SERVERS: "is what --bootstrap says",
    GROUP: "is made of the command and the topic, so that each shows its own lag; `tidemill consume` has --group",
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
        return {SERVERS: self.servers, **self.client}

    @property
    def kafka(self) -> dict[str, str]:
        """What sources and sinks of Spark are told."""
        return {f"kafka.{name}": value for name, value in {**PATIENCE, **self.options}.items()}


def parse_client(
    servers: str | None,
    given: Iterable[str],
    environment: Mapping[str, str],
    *,
    default: str,
    understood: Collection[str],
    read: Callable[[str], str],
) -> KafkaBroker:
    """A broker as it is written on a command line: its address, and name=value or a file of such lines, in any number.

    Of two values for a name the later counts. A file may name the broker, for a command line that does not. Whoever
    writes a name by hand means it: one that is not `understood` is refused. In a file, which often serves several
    programs, it is left alone.
    """
    client: dict[str, str] = {}
    for each in given:
        source, told = _said(each, understood, read)
        for name, text in told.items():
            try:
                client[name] = filled(text, environment)
            except WrongOption as error:
                raise WrongOption(f"{source}{name} {error}") from None
    named = client.pop(SERVERS, None)
    client.pop(GROUP, None)
    broker = KafkaBroker(servers or named or default, client)
    try:
        parse_options(broker.options)
    except InvalidClientOption as error:
        raise WrongOption(f"--client: {error}" if client else f"--bootstrap: {error}") from None
    return broker


def _said(given: str, understood: Collection[str], read: Callable[[str], str]) -> tuple[str, Mapping[str, str]]:
    """What one --client says, and how an error about it begins."""
    name, found, value = given.partition("=")
    if not found:
        return f"--client {given}: ", _in_file(given, read)
    if not name:
        raise WrongOption(f"--client {given} has no name; write for example security.protocol=SASL_SSL")
    if name in ELSEWHERE:
        raise WrongOption(f"--client {name} {ELSEWHERE[name]}")
    if name not in understood and name not in REFUSED:
        near = get_close_matches(name, understood, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "it takes client.id and how to be let in: sasl.*, ssl.*"
        raise WrongOption(f"--client {name} means nothing to this command; {hint}")
    return "--client ", {name: value}


def _in_file(name: str, read: Callable[[str], str]) -> dict[str, str]:
    try:
        return parse_properties(read(name))
    except WrongOption as error:
        raise WrongOption(f"--client {name}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise WrongOption(
            f"--client {name}: {why}; give name=value such as security.protocol=SASL_SSL, or a file of such lines"
        ) from None


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with what the environment has for each `${NAME}`, so that no password need be written down."""
    for name in _VARIABLE.findall(text):
        if name not in environment:
            raise WrongOption(f"names ${{{name}}}, which the environment does not have")
    return _VARIABLE.sub(lambda found: environment[found[1]], text)
