"""The connection to a Kafka broker: its address and the client's settings, in Kafka's spelling."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import LOGIN_NAMES, PATIENCE_NAMES, REFUSED, parse_options
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spec.core.properties import parse_properties

PATIENCE = {"socket.connection.setup.timeout.ms": "30000"}
"""A pipeline has reached the broker before it starts. A broker that stops answering later is restarting, so wait for
it."""
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
"""The client settings that a pipeline uses."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
ELSEWHERE = {
    SERVERS: "is not set like this; give --bootstrap",
    GROUP: "is made of the command and the topic, so that each shows its own lag; use `tidemill consume --group`",
}


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A broker and the client settings for it, such as credentials."""

    servers: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May contain passwords, so `repr` leaves it out."""

    @property
    def options(self) -> dict[str, str]:
        """The options for the client of this package."""
        return {SERVERS: self.servers, **self.client}

    @property
    def kafka(self) -> dict[str, str]:
        """The options for Spark's sources and sinks."""
        return {f"kafka.{name}": value for name, value in {**PATIENCE, **self.options}.items()}


def parse_client(
    servers: str | None,
    given: Iterable[str],
    environment: Mapping[str, str],
    *,
    default: str,
    understood: Collection[str],
    read: Callable[[str], str],
    check: Callable[[Mapping[str, str]], object] = parse_options,
) -> KafkaBroker:
    """Parse a broker from a command line: its address and any number of settings or settings files.

    Each of `given` is name=value or the name of a file of such lines. The last value of a name counts. A file may name
    the broker if the command line does not. A name on the command line that is not `understood` is refused, because the
    user meant it. In a file it is ignored, because files often serve several programs.
    """
    client: dict[str, str] = {}
    for each in given:
        source, settings = _settings_of(each, understood, read)
        for name, text in settings.items():
            try:
                client[name] = filled(text, environment)
            except WrongOption as error:
                raise WrongOption(f"{source}{name} {error}") from None
    named = client.pop(SERVERS, None)
    client.pop(GROUP, None)
    broker = KafkaBroker(servers or named or default, client)
    try:
        check(broker.options)
    except InvalidClientOption as error:
        raise WrongOption(f"--client: {error}" if client else f"--bootstrap: {error}") from None
    return broker


def _settings_of(given: str, understood: Collection[str], read: Callable[[str], str]) -> tuple[str, Mapping[str, str]]:
    """The settings of one --client, and the beginning of an error about it."""
    name, found, value = given.partition("=")
    if not found:
        return f"--client {given}: ", _in_file(given, read)
    if not name:
        raise WrongOption(f"--client {given} has no name; write, for example, security.protocol=SASL_SSL")
    if name in ELSEWHERE:
        raise WrongOption(f"--client {name} {ELSEWHERE[name]}")
    if name not in understood and name not in REFUSED:
        near = get_close_matches(name, understood, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "it takes client.id, security.protocol, sasl.* and ssl.*"
        raise WrongOption(f"--client {name} is not a setting of this command; {hint}")
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
    """Replace each `${NAME}` by its environment variable, so that passwords need not be written down."""
    for name in _VARIABLE.findall(text):
        if name not in environment:
            raise WrongOption(f"names ${{{name}}}, which is not set in the environment")
    return _VARIABLE.sub(lambda found: environment[found[1]], text)
