"""Commands at a broker with TLS and logins, and at ports where no Kafka broker is.

The broker is a real one behind `tests.support.secured_front`; tests/integration/spark/test_security.py uses it too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.command_line import CommandLine
from tests.support.etcd import Certificates
from tests.support.secured_front import SecuredFront

from tidemill.testing import Broker

USER, PASSWORD = "ann", "se=cret; x\\1"
FAILED, WRONG_USE = 1, 2


class Secured(NamedTuple):
    """A broker and what a client has to know to be let in."""

    broker: Broker
    front: SecuredFront
    client: dict[str, str]
    folder: Path

    def options(self, **more: str) -> list[str]:
        """As they are written on a command line."""
        told = {**self.client, **{name.replace("_", "."): value for name, value in more.items()}}
        return ["-b", self.front.address, *(f"--client={name}={value}" for name, value in told.items())]

    def file(self, **more: str) -> str:
        """The name of a file that says the same, and where the broker is."""
        path = self.folder / "client.properties"
        told = {"bootstrap.servers": self.front.address, **self.client, **more}
        path.write_text("# who we are\n" + "".join(f"{name} = {value}\n" for name, value in told.items()))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    certificates = Certificates(folder)
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": "${ANNS_PASSWORD}",
        "ssl.ca.location": str(certificates.ca),
    }
    with (
        SecuredFront(certificates, {USER: PASSWORD}) as front,
        Broker(process=True, flags={"advertise": front.address}) as broker,
    ):
        front.serve(broker.bootstrap_servers)
        yield Secured(broker, front, client, folder)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("ANNS_PASSWORD", PASSWORD)
    line = CommandLine("", capfd, monkeypatch)
    monkeypatch.delenv("TIDEMILL_BOOTSTRAP")
    return line


def test_every_command_that_talks_to_a_broker_is_let_in(secured: Secured, cli: CommandLine) -> None:
    told = secured.options()
    cli.fine("topic", "create", "safe", "-p", "2", *told)
    cli.fine("produce", "safe", "-m", "a", "-m", "b", "--partition", "0", *told)
    assert cli.fine("consume", "safe", "--group", "mailer", "-n", "2", *told).lines == ["a", "b"]
    [partition] = cli.fine("group", "describe", "mailer", "--json", *told).json()["partitions"]
    assert (partition["committed"], partition["lag"]) == (2, 0)
    described = cli.fine("topic", "describe", "safe", "--json", *told).json()
    assert [each["records"] for each in described["partitions"]] == [2, 0]
    cli.fine("topic", "alter", "safe", "--config", "retention.ms=1000000", *told)
    cli.fine("topic", "reassign", "safe", "--replicas", "0", *told)
    cli.fine("group", "reset-offsets", "mailer", "--to-earliest", *told)
    handled = cli.fine("consume", "safe", "--exec", "cat; echo", "-n", "2", *told)
    assert handled.lines == ["a", "b"]
    failing = ("--exec", "false", "--attempts", "1", "--dead-letter", "safe.dlq", "--group", "failing", "-n", "2")
    assert "2 dead letters" in cli.fine("consume", "safe", *failing, *told).err
    assert cli.fine("consume", "safe.dlq", "--from-beginning", *told).lines == ["a", "b"]
    cli.fine("group", "delete", "failing", "--yes", *told)
    assert [each["group"] for each in cli.fine("group", "list", "--json", *told).json()] == [
        "mailer",
        "tidemill-exec-safe",
    ]
    cli.fine("group", "delete", "mailer", "--yes", *told)
    assert cli.fine("cluster", "status", "--json", *told).json()["partitions"] > 0
    assert "already balanced" in cli.fine("cluster", "rebalance", *told).err
    cli.fine("cluster", "choose", "reminders", *told)
    assert "broker 7 is not known" in cli.refused(FAILED, "cluster", "forget", "7", *told)
    cli.fine("bench", "--records", "10", "--singles", "1", *told)
    assert "safe" in cli.fine("topic", "list", *told).out
    cli.fine("topic", "delete", "safe", "safe.dlq", "--yes", *told)


def test_a_file_says_it_once_for_all_commands(
    secured: Secured, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secured.file()
    cli.fine("topic", "list", "--client", file)
    monkeypatch.setenv("TIDEMILL_CLIENT", file)
    cli.fine("topic", "create", "named")
    assert "named" in [each["topic"] for each in cli.fine("topic", "list", "--json").json()]
    # What is said on the command line counts more than what the file says.
    assert f"rejects user {USER}" in cli.refused(FAILED, "topic", "list", "--client", "sasl.password=guess")
    assert "no broker answers at 127.0.0.1:1" in cli.refused(FAILED, "topic", "list", "-b", "127.0.0.1:1")
    cli.fine("topic", "delete", "named", "--yes")


@pytest.mark.parametrize(
    ("more", "code", "line"),
    [
        ({"sasl_password": "guess"}, FAILED, f"rejects user {USER}: Authentication failed"),
        ({"security_protocol": "PLAINTEXT"}, FAILED, "check security.protocol"),
        ({"security_protocol": "SSL"}, FAILED, "check whether it requires a login"),
        (
            {"sasl_password": "${NOBODYS}"},
            WRONG_USE,
            "sasl.password names ${NOBODYS}, which is not set in the environment",
        ),
        ({"sasl_mechanism": "GSSAPI"}, WRONG_USE, "--client: sasl.mechanism: GSSAPI is not one of PLAIN"),
        ({"group_id": "mine"}, WRONG_USE, "--client group.id is made of the command and the topic"),
        ({"linger_ms": "5"}, WRONG_USE, "--client linger.ms is not a setting of this command; it takes client.id"),
        ({"bootstrap_servers": "x:1"}, WRONG_USE, "--client bootstrap.servers is not set like this; give --bootstrap"),
    ],
)
def test_who_is_not_let_in_is_told_at_once_and_in_one_line(
    secured: Secured, cli: CommandLine, more: dict[str, str], code: int, line: str
) -> None:
    for command in (
        "topic list",
        "produce x -m a",
        "consume x --from-beginning",
        "group list",
        "cluster status",
        "bench",
    ):
        said = cli.refused(code, *command.split(), *secured.options(**more))
        assert line in said
        assert PASSWORD not in said


def test_a_port_of_another_door_is_named(secured: Secured, cli: CommandLine) -> None:
    for address, spoken in ((secured.broker.grpc, "gRPC"), (secured.broker.http, "HTTP")):
        for command in ("topic list", "produce x -m a", "cluster status", "cluster forget 1"):
            said = cli.refused(FAILED, *command.split(), "-b", address.removeprefix("http://"))
            assert f"uses {spoken}, not the Kafka protocol; use the kafka= address" in said


def test_a_file_that_cannot_be_read_is_named(secured: Secured, cli: CommandLine, tmp_path: Path) -> None:
    said = cli.refused(WRONG_USE, "topic", "list", "--client", "nowhere.properties")
    assert said == (
        "--client nowhere.properties: No such file or directory; give name=value such as security.protocol=SASL_SSL, "
        "or a file of such lines"
    )
    broken = tmp_path / "broken.properties"
    broken.write_text("security.protocol=SSL\nnothing\n")
    assert f"--client {broken}: line 2 is not name=value" in cli.refused(
        WRONG_USE, "topic", "list", "--client", str(broken)
    )
    asked = secured.file(**{"sasl.password": "${NOBODYS}"})
    assert f"--client {asked}: sasl.password names ${{NOBODYS}}" in cli.refused(
        WRONG_USE, "topic", "list", "--client", asked
    )
