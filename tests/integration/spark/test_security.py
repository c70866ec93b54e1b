"""Spark at a listener with TLS and SASL: what users of Spark's own connector write works here, or is refused by name.

The broker is a real one behind `tests.support.secured_front`. confluent-kafka uses that listener too.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.integration.spark.queries import ints
from tests.integration.spark.topics import LIMIT_S, Outside
from tests.support.etcd import Certificates
from tests.support.secured_front import SecuredFront

from tidemill.cli.connection import broker_at
from tidemill.cli.errors import CommandFailed
from tidemill.cli.main import main
from tidemill.cli.pipeline_options import existing_topics
from tidemill.cli.pipeline_tables import gathered
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.run.status import Reporter
from tidemill.pipelines.sink.registry import sink_types, writer_of
from tidemill.pipelines.spark.latest import Latest, start_latest
from tidemill.pipelines.spark.sinks import start_pipeline
from tidemill.pipelines.spec.loading import load
from tidemill.testing import Broker

USER, PASSWORD = "ann", 'se"cret; x=\\1'
SECRET = "cret; x="
"""The part of it that looks the same wherever it is written."""
POLL_S = 0.5
QUICK = {"default.api.timeout.ms": "500", "socket.connection.setup.timeout.ms": "500"}
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROWS = 1000


class Secured(NamedTuple):
    """A broker behind its listener, and another client there."""

    front: SecuredFront
    certificates: Certificates
    outside: Outside

    def options(self, **more: str) -> dict[str, str]:
        """As Spark's users write them."""
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        return {
            "kafka.bootstrap.servers": self.front.address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{MODULE} required\n  username="{USER}"\n  password="{quoted}";',
            "kafka.ssl.truststore.location": str(self.certificates.ca),
            "kafka.ssl.truststore.type": "PEM",
        } | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    with (
        SecuredFront(certificates, {USER: PASSWORD}) as front,
        Broker(process=True, flags={"advertise": front.address}) as broker,
    ):
        front.serve(broker.bootstrap_servers)
        yield Secured(front, certificates, other_client(front, certificates, "SCRAM-SHA-256"))


def other_client(front: SecuredFront, certificates: Certificates, mechanism: str) -> Outside:
    return Outside(
        front.address,
        security_protocol="SASL_SSL",
        sasl_mechanisms=mechanism,
        sasl_username=USER,
        sasl_password=PASSWORD,
        ssl_ca_location=str(certificates.ca),
    )


def read(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format("tidemill").options(**options, subscribe=topic).load()


def test_the_front_is_what_other_clients_know(secured: Secured) -> None:
    """Otherwise the tests below would prove nothing."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = other_client(secured.front, secured.certificates, mechanism)
        client.write("others", [{"value": mechanism}])
        assert mechanism in secured.front.admitted


def test_batches_go_in_and_out(spark: SparkSession, secured: Secured) -> None:
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("tidemill").mode("append").options(**secured.options(), topic="batch").save()
    assert ints(read(spark, secured.options(), "batch")) == list(range(ROWS))
    plain = secured.options(kafka_sasl_mechanism="PLAIN")
    plain["kafka.sasl.jaas.config"] = plain["kafka.sasl.jaas.config"].replace(MODULE, "kafkashaded.x.PlainLoginModule")
    pem = plain.pop("kafka.ssl.truststore.location")
    plain["kafka.ssl.truststore.certificates"] = Path(pem).read_text()
    assert read(spark, plain, "batch").count() == ROWS


def test_a_stream_goes_through(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    secured.outside.create("orders")
    secured.outside.write_values("orders", range(ROWS))
    given = secured.options(kafka_group_id="revenue")
    rows = spark.readStream.format("tidemill").options(**given, subscribe="orders", startingOffsets="earliest").load()
    sink = secured.options(topic="copies", checkpointLocation=str(tmp_path))
    query = rows.select("value").writeStream.format("tidemill").options(**sink).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    assert secured.outside.values("copies") == list(range(ROWS))
    assert sum(secured.outside.group("revenue").values()) == ROWS


def test_a_pipeline_reads_its_password_from_the_environment(
    spark: SparkSession, secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.outside.create("piped")
    secured.outside.write_values("piped", range(ROWS))
    monkeypatch.setenv("ANNS_PASSWORD", PASSWORD)
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": "${ANNS_PASSWORD}",
        "ssl.ca.location": str(secured.certificates.ca),
    }
    spec = {
        "name": "safe",
        "broker": secured.front.address,
        "client": client,
        "sources": {"orders": {"topic": "piped", "format": "raw"}},
        "sinks": {"out": {"from": "orders", "topic": "piped-on"}},
    }
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    folder = load(tmp_path, sink_types())
    existing_topics(folder.spec.reached, ["piped"])
    queries = start_pipeline(spark, folder, writer_of, print, once=True)
    tend(queries, threading.Event(), Reporter(folder, print, lambda: 0))
    assert secured.outside.values("piped-on") == list(range(ROWS))
    with pytest.raises(CommandFailed, match="there is no topic"):
        existing_topics(folder.spec.reached, ["nowhere"])


CLIENT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": USER,
    "sasl.password": "${ANNS_PASSWORD}",
}


def reported(secured: Secured, **more: str) -> list[str]:
    """The arguments of a command that name the listener."""
    client = {**CLIENT, "ssl.ca.location": str(secured.certificates.ca), **more}
    return ["--bootstrap", secured.front.address, *(f"--client={name}={value}" for name, value in client.items())]


def test_an_archive_goes_out_and_back_and_keeps_no_password(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secured.outside.create("kept")
    secured.outside.write_values("kept", range(ROWS))
    monkeypatch.setenv("ANNS_PASSWORD", PASSWORD)
    lake = tmp_path / "kept"
    words = [sys.executable, "-m", "tidemill", "pipeline", "archive", "kept", "--to", str(tmp_path), *reported(secured)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as command:
        seen: set[str] = set()
        while command.poll() is None:
            seen |= set(command_lines(command.pid))
            time.sleep(POLL_S)
        said, _ = command.communicate(timeout=LIMIT_S)
    assert f"archived {ROWS:,} records of kept; {lake} has {ROWS:,}" in said
    assert any("org.apache.spark" in line for line in seen)  # what Spark starts was among them
    assert main(["pipeline", "replay", str(lake), "--to", "kept-again", *reported(secured)]) == 0
    assert secured.outside.values("kept-again") == list(range(ROWS))
    assert main(["pipeline", "audit", str(lake), "--against", secured.front.address, *reported(secured)[2:]]) == 0
    files = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert SECRET not in "".join([said, *seen, *capfd.readouterr(), *files])


def command_lines(pid: int) -> Iterator[str]:
    """The command lines of a process and all its children, which every user of the machine can see."""
    with suppress(OSError):  # it may end meanwhile
        yield Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from command_lines(int(child))


def test_tables_and_reports_log_in(
    spark: SparkSession, secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.outside.create("prices")
    secured.outside.write("prices", [{"key": str(at % 10), "value": str(at)} for at in range(ROWS)])
    monkeypatch.setenv("ANNS_PASSWORD", PASSWORD)
    client = [word.removeprefix("--client=") for word in reported(secured)[2:]]
    broker = broker_at(secured.front.address, client)
    table = open_lake(tmp_path / "prices")
    tend(start_latest(spark, table, Latest(broker, "prices")), threading.Event(), lambda _: None)
    assert sum(file.rows for file in table.files()) == 10
    [topic] = gathered(spark, broker, ["prices"], since_ms=0).topics
    assert topic.records == ROWS
    assert SECRET not in repr(broker)


@pytest.mark.parametrize(
    ("client", "code", "line"),
    [
        ({"sasl.password": "guess"}, 1, f"rejects user {USER}: Authentication failed"),
        ({"security.protocol": "PLAINTEXT"}, 1, "check security.protocol"),
        ({"sasl.password": "${NOBODYS_PASSWORD}"}, 2, "names ${NOBODYS_PASSWORD}, which is not set in the environment"),
        ({"sasl.mechanism": "GSSAPI"}, 2, "--client: sasl.mechanism: GSSAPI is not one of PLAIN"),
        ({"group.id": "mine"}, 2, "--client group.id is made of the command and the topic"),
    ],
)
def test_a_command_reports_a_rejected_login_in_one_line(
    secured: Secured,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    client: dict[str, str],
    code: int,
    line: str,
) -> None:
    monkeypatch.setenv("ANNS_PASSWORD", PASSWORD)
    words = reported(secured, **QUICK, **client)
    for command in ("archive nowhere --to {0}", "latest nowhere --to {0}", "report --to {0}"):
        assert main(["pipeline", *command.format("lake").split(), *words]) == code
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        assert line in err


def test_a_rejected_login_is_reported_in_one_line(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    wrong = f'{MODULE} required username="{USER}" password="guess";'
    strangers = Certificates(tmp_path, "strangers")
    for given, line in (
        ({"kafka.sasl.jaas.config": wrong}, f"{secured.front.address} rejects user {USER}: Authentication failed"),
        (
            {"kafka.ssl.truststore.location": str(strangers.ca)},
            "set ssl.ca.location or ssl.truststore.location to the CA that signed it",
        ),
        ({"kafka.security.protocol": "PLAINTEXT"}, "check security.protocol"),
        (
            {"kafka.ssl.truststore.type": "JKS"},
            "kafka.ssl.truststore.type: JKS is a Java store, and only PEM is supported",
        ),
    ):
        options = {**secured.options(), "kafka.default.api.timeout.ms": "500", **given}
        with pytest.raises(PySparkException) as caught:
            read(spark, options, "batch").collect()
        assert any(line in each for each in str(caught.value).splitlines()), str(caught.value)[:2000]
    rows = spark.range(1).selectExpr("'x' as value").write.format("tidemill").mode("append")
    with pytest.raises(PySparkException, match=f"rejects user {USER}: Authentication failed"):
        rows.options(**{**secured.options(), "kafka.sasl.jaas.config": wrong}, topic="batch").save()
