"""Which Spark runs a pipeline, and errors in one line when it cannot; no JVM is started here."""

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.run.core.master import HADOOP
from tidemill.pipelines.spark.remote import Where, check_where, session_for


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (Where("local[2]", "sc://host"), "give --master or --remote, not both"),
        (Where(remote="spark://host:7077"), "write sc://host:15002"),
        (Where(remote="sc://host", settings={"spark.a": "b"}), "--conf is for a Spark that is started here"),
        (Where("mesos://host"), "--master is mesos://host; write local"),
        (Where("local[x]"), r"--master is local\[x\]; write local"),
        (Where("spark://host"), "--master is spark://host; write local"),
        (Where("k8s://"), "--master is k8s://; write local"),
        (Where("yarn"), "--master yarn needs HADOOP_CONF_DIR: set it to the folder with"),
    ],
)
def test_a_wrong_place_is_reported_before_anything_starts(
    where: Where, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in HADOOP:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WrongOption, match=line):
        check_where(where)


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1,127.0.0.1:2", "k8s://https://127.0.0.1:1", "k8s://127.0.0.1:1"]
)
def test_a_master_that_does_not_answer_is_reported_at_once(master: str) -> None:
    with pytest.raises(PipelineError, match=f"no master answers at {master} .*refused.*; check that it runs"):
        check_where(Where(master))


def test_a_spark_connect_server_that_does_not_answer_is_reported_at_once() -> None:
    with pytest.raises(PipelineError, match=r"no Spark Connect server answers at sc://127\.0\.0\.1:1/;a=b .*refused"):
        check_where(Where(remote="sc://127.0.0.1:1/;a=b"))


def test_kubernetes_needs_an_image_wherever_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    named = "spark.kubernetes.container.image"
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"k8s://http://127.0.0.1:{server.getsockname()[1]}"
        for lacking in ({}, {"spark.kubernetes.namespace": "shop"}):
            with pytest.raises(
                WrongOption, match=f"--master {master} needs {named}; set it to an image of Spark with Tidemill"
            ):
                check_where(Where(master, settings=lacking))
        check_where(Where(master, settings={named: "x"}))
        check_where(Where(master, settings={"spark.kubernetes.executor.container.image": "x"}))
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        with pytest.raises(WrongOption, match=named):
            check_where(Where(master))
        (tmp_path / "spark-defaults.conf").write_text(f"{named} x\n")
        check_where(Where(master))


def test_a_long_error_of_spark_becomes_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        yield

    monkeypatch.setattr("tidemill.pipelines.spark.remote.quiet_session", session)
    with (
        pytest.raises(PipelineError, match=r'^Cannot run program "./env/bin/python".*: install Tidemill in the Python'),
        session_for(Where(), "test", tmp_path, print, verbose=False),
    ):
        raise Py4JError(
            'An error occurred.\n: java.io.IOException: Cannot run program "./env/bin/python": error=2\n\tat a'
        )


def test_a_missing_client_of_spark_connect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = Where(remote=f"sc://127.0.0.1:{server.getsockname()[1]}")
        check_where(where)
        monkeypatch.setattr(
            "tidemill.pipelines.spark.remote.find_spec", lambda name: None if name == "grpc_status" else found(name)
        )
        with pytest.raises(PipelineError, match="Spark Connect needs grpcio-status; run: pip install"):
            check_where(where)
