"""Whole commands of pipelines on a remote Spark: a Spark Connect server, a standalone master with a worker, YARN."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.integration.spark.commands import END_S, make_pipeline, only_rows, order, run_all
from tests.integration.spark.topics import Outside
from tests.integration.spark.yarn import JARS, running_yarn
from tests.support.waiting import eventually

from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.spark.spark_home import quick_home

BIN = Path(pyspark.__file__).parent / "bin"
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss8m"
START_S = 120
YARN_S = 400
"""Containers are JVMs of their own: three of them, one after the other."""

pytestmark = [pytest.mark.timeout(START_S + END_S), pytest.mark.long]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def jvm(words: list[str], said: Path, port: int, **environment: str) -> Iterator[None]:
    """A program of Spark that listens on a port; it ends with the block."""
    with quick_home():
        given = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    with (
        said.open("w") as out,
        subprocess.Popen(words, env=given, stdout=out, stderr=out, start_new_session=True) as run,
    ):
        try:
            eventually(lambda: listens(port) or run.poll() is not None, within_s=START_S)
            assert run.poll() is None, said.read_text()
            yield
        finally:
            os.killpg(run.pid, signal.SIGKILL)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    scratch, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"{LEAN} -Dderby.system.home={scratch}",
    }
    words = [str(BIN / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    with jvm([*words, "spark-internal"], scratch / "said", port):
        yield f"sc://127.0.0.1:{port}"


def test_commands_run_on_a_spark_connect_server(connect: str, outside: Outside, tmp_path: Path) -> None:
    source, totals, rows = (outside.create(f"connect-{name}") for name in ("orders", "totals", "rows"))
    orders = [order(number) for number in range(30)]
    outside.write(source, ({"key": str(each["item"]), "value": json.dumps(each)} for each in orders))
    shop, graph = tmp_path / "shop", tmp_path / "graph"
    make_pipeline(shop, outside.servers, source, totals)
    make_pipeline(graph, outside.servers, source, rows)
    only_rows(graph)
    run_all(
        [
            ["run", str(shop), "--once", "--remote", connect],
            ["run", str(graph), "--runner", "declarative", "--remote", connect],
            ["archive", source, "--to", str(tmp_path / "lake"), "--remote", connect],
        ],
        outside.servers,
    )

    sums: dict[object, tuple[int, float]] = {}
    for each in orders:
        sold, revenue = sums.get(each["item"], (0, 0.0))
        sums[each["item"]] = (sold + each["quantity"], revenue + each["quantity"] * 1.5)
    reported = [json.loads(message.value()) for message in outside.read(totals)]
    assert {each["item"]: (each["sold"], each["revenue"]) for each in reported} == sums
    assert len(reported) == len(sums)

    wanted = sorted((each["item"], each["quantity"], each["quantity"] * 1.5) for each in orders)
    table = pq.read_table(shop / "lake" / "priced").to_pylist()
    assert sorted((each["item"], each["quantity"], each["total"]) for each in table) == wanted
    found = [json.loads(message.value()) for message in outside.read(rows)]
    assert sorted((each["item"], each["quantity"], each["total"]) for each in found) == wanted

    lake = open_lake(tmp_path / "lake" / source)
    assert audit(lake).contiguous
    archived = [json.loads(value) for value in pq.read_table(lake.root)["value"].to_pylist()]
    assert sorted(archived, key=lambda each: each["quantity"]) == orders


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master that has one worker."""
    port, worker_port = free_port(), free_port()
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    deploy, url = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    start = [str(BIN / "spark-class")]
    java = {"SPARK_DAEMON_JAVA_OPTS": LEAN, "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as running:
        words = [*start, f"{deploy}.master.Master", *local, "--port", str(port)]
        running.enter_context(jvm(words, tmp_path / "said-master", port, **java))
        words = [*start, f"{deploy}.worker.Worker", *local, "--port", str(worker_port), "-c", "2", "-m", "1g"]
        words += ["-d", str(tmp_path / "work"), url]
        running.enter_context(jvm(words, tmp_path / "said-worker", worker_port, **java))
        eventually(lambda: "Successfully registered" in (tmp_path / "said-worker").read_text())
        yield url


def test_a_command_runs_on_a_standalone_cluster(master: str, outside: Outside, tmp_path: Path) -> None:
    topic = outside.create("standalone")
    outside.write_values(topic, range(50))
    outside.write_values(topic, range(50, 80), partition=1)
    run_all([["archive", topic, "--to", str(tmp_path / "lake"), "--master", master]], outside.servers)
    lake = open_lake(tmp_path / "lake" / topic)
    assert audit(lake).contiguous
    assert sorted(map(int, pq.read_table(lake.root)["value"].to_pylist())) == list(range(80))
    executors = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert executors  # it was the worker that did it


@pytest.mark.timeout(START_S + YARN_S)
def test_a_pipeline_runs_on_yarn(outside: Outside, tmp_path: Path) -> None:
    source, sink = outside.create("yarn-orders"), outside.create("yarn-rows")
    orders = [order(number) for number in range(30)]
    outside.write(source, ({"key": str(each["item"]), "value": json.dumps(each)} for each in orders))
    shop, scratch = tmp_path / "shop", tmp_path / "yarn"
    make_pipeline(shop, outside.servers, source, sink)
    only_rows(shop)
    scratch.mkdir()
    settings = {
        "spark.yarn.jars": f"local:{JARS}/*",
        "spark.yarn.stagingDir": str(scratch / "staging"),
        "spark.yarn.am.memory": "512m",
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    }
    words = ["run", str(shop), "--once", "--master", "yarn"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    with running_yarn(scratch) as found:
        where = {"HADOOP_CONF_DIR": str(found), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        run_all([words], outside.servers, within_s=YARN_S, **where)
    rows = [json.loads(message.value()) for message in outside.read(sink)]
    wanted = sorted((each["item"], each["quantity"], each["quantity"] * 1.5) for each in orders)
    assert sorted((each["item"], each["quantity"], each["total"]) for each in rows) == wanted
    executors = [each for each in scratch.rglob("container_*/stderr") if "Running task" in each.read_text()]
    assert executors  # it was a container that did it
