"""Servers that require a password and use HTTPS. Other clients get an error of one line.

The server is the front over the embedded engine, with a certificate that was made for it. It also parses what is said
to a cluster of replicas, of which there is none here.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.clickhouse import Server, running
from tests.support.etcd import Certificates

from tidemill.streams.clickhouse import schema, visit
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.url import parse
from tidemill.testing import Broker

WAIT_S = 60.0
LOGIN = "me:p@s:s"
QUOTED = "me:p%40s%3As"
SECRETS = ("p@s", "p%40s", "wrong")


class World(NamedTuple):
    server: Server
    ours: Certificates
    others: Certificates

    def url(self, login: str = QUOTED, options: str | None = None) -> str:
        chosen = f"ca={self.ours.ca}" if options is None else options
        return f"clickhouse://{login}@127.0.0.1:{self.server.port}/tidemill?{chosen}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("login")
    ours, others = Certificates(home), Certificates(home, "others")
    with running(home, 1, LOGIN, (ours.cert, ours.key, ours.ca)) as (server,):
        yield World(server, ours, others)


def test_a_broker_logs_in_over_tls_and_shows_no_secret(world: World) -> None:
    with Broker(process=True, flags={"streams": world.url(), "grpc": "none"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("secrets", b"tea", partition=0)
        assert producer.flush(WAIT_S) == 0
        assert world.server.ask("SELECT value FROM messages WHERE topic = 'secrets'") == "tea"
        asked = {"query": "SELECT value FROM messages WHERE topic = 'secrets'"}
        assert httpx.post(f"{broker.http}/api/v1/sql", json=asked, timeout=WAIT_S).json()["rows"] == [["tea"]]
        reported = httpx.get(f"{broker.http}/api/status", timeout=WAIT_S).json()["runs"]["streams"]
        assert reported == f"clickhouse://127.0.0.1:{world.server.port}/tidemill?ca={world.ours.ca}"
        for page in ("/", "/api/status", "/metrics", "/health"):
            found = httpx.get(f"{broker.http}{page}", timeout=WAIT_S).text
            assert not [secret for secret in SECRETS if secret in found]


NOT_LET_IN = "ClickHouse at {at} rejected the login; check user and password in --streams"
NOT_TRUSTED = (
    "the certificate of ClickHouse at {at} is not trusted (unable to get local issuer certificate); "
    "name the CA that signed it with ?ca=FILE"
)


@pytest.mark.parametrize(
    ("login", "signer", "said"),
    [("me:wrong", "ours", NOT_LET_IN), (QUOTED, "others", NOT_TRUSTED)],
    ids=["password", "signer"],
)
def test_a_broker_reports_a_rejected_login_in_one_line(
    world: World, tmp_path: Path, login: str, signer: str, said: str
) -> None:
    url = world.url(login, f"ca={getattr(world, signer).ca}")
    command = [sys.executable, "-m", "tidemill", "serve", "--data-dir", str(tmp_path), "--log-level", "warning"]
    command += ["--kafka", "127.0.0.1:0", "--grpc", "none", "--http", "none"]
    where = {**os.environ, "TIDEMILL_STREAMS": url}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S, env=where)
    assert done.returncode == 1
    assert done.stderr == f"error: {said.format(at=world.server.name)}\n"


@pytest.mark.parametrize(
    ("login", "options", "said"),
    [("you:p%40s%3As", None, NOT_LET_IN), (QUOTED, "secure=true", NOT_TRUSTED), (QUOTED, None, "")],
    ids=["another user", "a signer whom the system does not know", "right"],
)
def test_doctor_finds_the_same(world: World, login: str, options: str | None, said: str) -> None:
    (found,) = visit(world.url(login, options))
    assert found.problem == said.format(at=world.server.name)
    assert bool(found.version) != bool(said)


@pytest.mark.parametrize("login", ["", LOGIN], ids=["certificate", "certificate and password"])
def test_a_server_that_asks_for_a_client_certificate(tmp_path: Path, login: str) -> None:
    """Without a password the certificate is the login; with one, both are sent."""
    ours, others = Certificates(tmp_path), Certificates(tmp_path, "others")
    with running(tmp_path, 1, login, (ours.cert, ours.key, ours.ca), asks_certificate=True) as (server,):
        user = f"{QUOTED}@" if login else "me@"
        at = f"clickhouse://{user}{server.name}/tidemill?ca={ours.ca}"
        (found,) = visit(f"{at}&cert={ours.cert}&key={ours.key}")
        assert (found.problem, bool(found.version)) == ("", True)
        for refused in (at, f"{at}&cert={others.cert}&key={others.key}"):
            (found,) = visit(refused)
            assert "?cert=FILE&key=FILE" in found.problem


def test_statements_for_replicated_tables_are_valid_sql(world: World) -> None:
    """Replicas and ON CLUSTER need servers that are not here: the engine's parser reads every statement for them."""
    layout = parse("clickhouse://one,two/shop?cluster=main&ranges=0-4,5-9", Path())
    statements = [*schema.preparation(layout), *schema.steps(layout, 0)]
    for statement in statements:
        written = world.server.ask(f"SELECT formatQuery({text(statement)})")
        if not statement.startswith("INSERT"):
            assert "ON CLUSTER main" in written
        for engine in ("ReplicatedMergeTree", "ReplicatedReplacingMergeTree"):
            assert (f"ENGINE = {engine}(" in written) == (f"ENGINE = {engine}(" in statement)
    tables = [each for each in statements if "ReplicatedMergeTree('/clickhouse/tables/{shard}/" in each]
    assert len(tables) >= 4
    with pytest.raises(OSError, match="500"):
        world.server.ask(f"SELECT formatQuery({text(statements[-2] + ' nonsense (')})")
