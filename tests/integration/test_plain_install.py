"""`pip install tidemill` without extras: streams and timelines work, and what needs more says what to install."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.support.command_line import CommandLine

from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2
WAIT_S = 60
EXTRAS = "aetcd asyncpg chdb clickhouse_connect deltalake matplotlib numba numpy pandas pyarrow pyiceberg pyspark yaml"
PROGRAM = f"""
import sys
from importlib.machinery import PathFinder


class Plain(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS.split()!r} else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Plain
from tidemill.cli.main import main

sys.exit(main(sys.argv[1:]))
"""
"""`tidemill` in a Python that finds no extra."""


def plain(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=cwd, capture_output=True, text=True, timeout=WAIT_S
    )


PIPELINES = "error: pipelines need pyspark: pip install 'tidemill[spark]'"
SERVER_FLAGS = "--kafka 127.0.0.1:0 --grpc 127.0.0.1:0 --http none"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("pipeline init shop", FAILED, PIPELINES),
        ("pipeline check shop", FAILED, PIPELINES),
        ("pipeline status", FAILED, PIPELINES),
        ("pipeline run shop", FAILED, PIPELINES),
        ("pipeline archive orders --to lake", FAILED, PIPELINES),
        ("pipeline audit lake/orders", FAILED, PIPELINES),
        ("pipeline compact lake/orders", FAILED, PIPELINES),
        ("pipeline replay lake/orders --to again", FAILED, PIPELINES),
        ("pipeline latest orders --to tables", FAILED, PIPELINES),
        ("pipeline report --to report", FAILED, PIPELINES),
        (f"serve {SERVER_FLAGS} --timelines postgresql://127.0.0.1:1/x", FAILED, "pip install 'tidemill[postgres]'"),
        (f"serve {SERVER_FLAGS} --coordination etcd://127.0.0.1:1", FAILED, "pip install 'tidemill[cluster]'"),
        (f"serve {SERVER_FLAGS} --streams chdb:", FAILED, "pip install 'tidemill[clickhouse]'"),
    ],
)
def test_a_missing_package_is_reported_in_one_line(tmp_path: Path, words: str, code: int, line: str) -> None:
    ran = plain(*words.split(), cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran
    assert line in ran.stderr


def test_streams_need_nothing_more(tmp_path: Path, cli_broker: Broker) -> None:
    where = ("-b", cli_broker.bootstrap_servers)
    for words in (
        "topic create plain",
        "produce plain -m tea",
        "consume plain --group g -n 1",
        "group describe g",
        "topic describe plain",
        "cluster status",
    ):
        ran = plain(*words.split(), *where, cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, ""), ran


def test_a_broker_without_sql_says_so_and_stops_in_order(tmp_path: Path, tidemill: CommandLine) -> None:
    words = ("serve", "--kafka", "none", "--grpc", "none", "--http", "127.0.0.1:0", "--log-level", "warning")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tmp_path,
        env=os.environ | {"TIDEMILL_DATA_DIR": str(tmp_path / "data")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        http = broker.stdout.readline().rpartition("http=")[2].strip()
        for _ in range(2):
            said = tidemill.refused(FAILED, "sql", "SELECT 1", "--http", http)
            assert said.startswith("SQL needs more packages; install them with: pip install 'tidemill[clickhouse]'")
        page = httpx.get(f"http://{http}/sql", timeout=WAIT_S)
        assert "This broker cannot run queries" in page.text
        assert "pip install &#39;tidemill[clickhouse]&#39;" in page.text
        assert httpx.get(f"http://{http}/api/v1/sql/tables", timeout=WAIT_S).json()["problem"] is not None
        broker.send_signal(signal.SIGTERM)
        _, errors = broker.communicate(timeout=WAIT_S)
    assert (broker.returncode, errors) == (0, "")
