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
        reported = {**self.client, **{name.replace("_", "."): value for name, value in more.items()}}
        return ["-b", self.front.address, *(f"--client={name}={value}" for name, value in reported.items())]

    def file(self, **more: str) -> str:
        """The name of a file that says the same, and where the broker is."""
        path = self.folder / "client.properties"
        reported = {"bootstrap.servers": self.front.address, **self.client, **more}
        path.write_text("# who we are\n" + "".join(f"{name} = {value}\n" for name, value in reported.items()))
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


def test_every_command_that_uses_a_broker_logs_in(secured: Secured, cli: CommandLine) -> None:
    reported = secured.options()
    cli.fine("topic", "create", "safe", "-p", "2", *reported)
    cli.fine("produce", "safe", "-m", "a", "-m", "b", "--partition", "0", *reported)
    assert cli.fine("consume", "safe", "--group", "mailer", "-n", "2", *reported).lines == ["a", "b"]
    [partition] = cli.fine("group", "describe", "mailer", "--json", *reported).json()["partitions"]
    assert (partition["committed"], partition["lag"]) == (2, 0)
    described = cli.fine("topic", "describe", "safe", "--json", *reported).json()
    assert [each["records"] for each in described["partitions"]] == [2, 0]
    cli.fine("topic", "alter", "safe", "--config", "retention.ms=1000000", *reported)
    cli.fine("topic", "reassign", "safe", "--replicas", "0", *reported)
    cli.fine("group", "reset-offsets", "mailer", "--to-earliest", *reported)
    handled = cli.fine("consume", "safe", "--exec", "cat; echo", "-n", "2", *reported)
    assert handled.lines == ["a", "b"]
    failing = ("--exec", "false", "--attempts", "1", "--dead-letter", "safe.dlq", "--group", "failing", "-n", "2")
    assert "2 dead letters" in cli.fine("consume", "safe", *failing, *reported).err
    assert cli.fine("consume", "safe.dlq", "--from-beginning", *reported).lines == ["a", "b"]
    cli.fine("group", "delete", "failing", "--yes", *reported)
    assert [each["group"] for each in cli.fine("group", "list", "--json", *reported).json()["groups"]] == [
        "mailer",
        "tidemill-exec-safe",
    ]
    cli.fine("group", "delete", "mailer", "--yes", *reported)
    assert cli.fine("cluster", "status", "--json", *reported).json()["partitions"] > 0
    assert "already balanced" in cli.fine("cluster", "rebalance", *reported).err
    cli.fine("cluster", "choose", "reminders", *reported)
    assert "broker 7 is not known" in cli.refused(FAILED, "cluster", "forget", "7", *reported)
    cli.fine("bench", "--records", "10", "--singles", "1", *reported)
    assert "safe" in cli.fine("topic", "list", *reported).out
    cli.fine("topic", "delete", "safe", "safe.dlq", "--yes", *reported)


def test_one_client_file_serves_all_commands(
    secured: Secured, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secured.file()
    cli.fine("topic", "list", "--client", file)
    monkeypatch.setenv("TIDEMILL_CLIENT", file)
    cli.fine("topic", "create", "named")
    assert "named" in [each["topic"] for each in cli.fine("topic", "list", "--json").json()["topics"]]
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
            {"sasl_password": "${UNSET}"},
            WRONG_USE,
            "sasl.password names ${UNSET}, which is not set in the environment",
        ),
        ({"sasl_mechanism": "GSSAPI"}, WRONG_USE, "--client: sasl.mechanism: GSSAPI is not one of PLAIN"),
        ({"group_id": "mine"}, WRONG_USE, "--client group.id is made of the command and the topic"),
        ({"linger_ms": "5"}, WRONG_USE, "--client linger.ms is not a setting of this command; it takes client.id"),
        ({"bootstrap_servers": "x:1"}, WRONG_USE, "--client bootstrap.servers is not set like this; give --bootstrap"),
    ],
)
def test_a_refused_login_gives_an_error_of_one_line_at_once(
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


def test_a_port_of_another_server_is_named(secured: Secured, cli: CommandLine) -> None:
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
    asked = secured.file(**{"sasl.password": "${UNSET}"})
    assert f"--client {asked}: sasl.password names ${{UNSET}}" in cli.refused(
        WRONG_USE, "topic", "list", "--client", asked
    )
