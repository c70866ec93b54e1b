"""Which Spark runs a pipeline, and queries that fail, die or lose their Spark; no JVM is started here."""

import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from tidemill.cli.main import main
from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.run.core.kubernetes import refusal
from tidemill.pipelines.run.core.master import HADOOP, check_master, places_of
from tidemill.pipelines.run.status import read_status
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spark.declarative import check_declarative
from tidemill.pipelines.spark.queries import Queries
from tidemill.pipelines.spark.quiet_session import quiet_session
from tidemill.pipelines.spark.remote import Where, check_where, session_for
from tidemill.pipelines.spec.core.spark_settings import parse_settings
from tidemill.pipelines.spec.core.spec import WrongSpec
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.loading import load


class Thread:
    def __init__(self, *, alive: bool) -> None:
        self._alive = alive

    def isAlive(self) -> bool:
        return self._alive

    def queryExecutionThread(self) -> "Thread":
        return self

    def streamingQuery(self) -> "Thread":
        return self


class Query:
    """What Spark gives for a query, as far as it is looked at."""

    def __init__(self, error: object = None, *, active: bool = True, alive: bool = True) -> None:
        self._error = error
        self._jsq = Thread(alive=alive)
        self.isActive = active
        self.stopped = False

    def exception(self) -> object:
        if isinstance(self._error, OSError):
            raise self._error
        return self._error

    def stop(self) -> None:
        self.stopped = True
        if isinstance(self._error, OSError):
            raise self._error


def queries(**named: Any) -> Queries:
    return Queries(named)


def test_queries_run_until_all_have_ended() -> None:
    assert not queries(a=Query(active=False), b=Query()).ended()
    assert queries(a=Query(active=False), b=Query(active=False)).ended()


@pytest.mark.parametrize(
    ("query", "line"),
    [
        (Query("tidemill.x.DataLost: offsets 3 to 5 are gone"), "out: offsets 3 to 5 are gone"),
        (Query(alive=False), "out: the query's thread died"),
        (
            Query(ConnectionRefusedError(111, "Connection refused")),
            r"Spark has ended \(.*Connection refused\); run the command again",
        ),
    ],
)
def test_what_ends_a_query_is_one_line(query: Query, line: str) -> None:
    running = queries(out=query)
    with pytest.raises(PipelineError, match=line) as caught:
        running.ended()
    assert "\n" not in str(caught.value)
    running.stop()
    assert query.stopped


def test_a_thread_that_ended_in_order_is_no_death() -> None:
    assert queries(out=Query(active=False, alive=False)).ended()


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
def test_a_wrong_place_is_told_before_anything_starts(where: Where, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HADOOP:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WrongOption, match=line):
        check_where(where)


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1,127.0.0.1:2", "k8s://https://127.0.0.1:1", "k8s://127.0.0.1:1"]
)
def test_a_master_that_does_not_answer_is_told_at_once(master: str) -> None:
    with pytest.raises(PipelineError, match=f"no master answers at {master} .*refused.*; check that it runs"):
        check_where(Where(master))


def test_a_spark_connect_server_that_does_not_answer_is_told_at_once() -> None:
    with pytest.raises(PipelineError, match=r"no Spark Connect server answers at sc://127\.0\.0\.1:1/;a=b .*refused"):
        check_where(Where(remote="sc://127.0.0.1:1/;a=b"))


def test_masters_and_where_they_are() -> None:
    for master in ("local", "local[4]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"):
        check_where(Where(master))
        assert places_of(master) == []
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})
    assert places_of("yarn") == []
    assert places_of("spark://a:1,b:2") == [("a", 1), ("b", 2)]
    assert places_of("k8s://https://a:6443") == [("a", 6443)]
    assert places_of("k8s://a") == [("a", 443)]
    assert places_of("k8s://http://a") == [("a", 80)]
    assert places_of("k8s://https://a:port") == []
    assert places_of("sc://a") == [("a", 15002)]
    assert places_of("sc://a:1/;use_ssl=true") == [("a", 1)]


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


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "Failure executing: POST. Message: Unauthorized. Received status: Status(apiVersion=v1, code=401",
            "Kubernetes says: Unauthorized (401); log in: the account is that of KUBECONFIG",
        ),
        (
            'Failure. Message: pods is forbidden: User "ann" cannot. Received status: Status(apiVersion=v1, code=403',
            'Kubernetes says: pods is forbidden: User "ann" cannot (403); give the account the role',
        ),
        ("Failure. Message: too large. Received status: Status(apiVersion=v1, code=413", "Kubernetes says: too large"),
        ("Connection refused", ""),
    ],
)
def test_what_kubernetes_refuses_is_told_with_what_to_do(said: str, line: str) -> None:
    assert refusal(said).startswith(line)
    assert bool(refusal(said)) == bool(line)


def test_what_spark_says_in_pages_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_settings_of_spark() -> None:
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong, line in {
        "spark.a": "--conf is spark.a; write a setting of Spark",
        "a=b": "--conf a is not a Spark setting; their names look like",
        "=b": "--conf  is not a Spark setting",
        "spark.master=local": "--conf spark.master is not set like this; give --master",
    }.items():
        with pytest.raises(WrongOption, match=line):
            parse_settings([wrong])


def test_a_spark_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: object, **__: object) -> None:
        os.write(2, b"WARN nothing\nException in thread: java.lang.OutOfMemoryError: no heap\n\tat a.b.C\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("tidemill.pipelines.spark.quiet_session.session", session)
    line = f"^Spark did not start on local: no heap; Spark's output is in {tmp_path}/spark.log$"
    with pytest.raises(PipelineError, match=line), quiet_session("local", "test", tmp_path, {}, print, verbose=False):
        pass


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_told_twice_to_stop_has_stopped_in_order(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first signal ends the queries, the second comes while Spark stops, the third while the command ends."""
    root = tmp_path / "shop"
    write_example(root, "127.0.0.1:9092")
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        yield
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)

    class Told(Queries):
        def ended(self) -> bool:
            os.kill(os.getpid(), number)
            return False

    monkeypatch.setattr("tidemill.cli.pipeline.existing_topics", lambda *_: None)
    monkeypatch.setattr("tidemill.pipelines.spark.remote.session_for", session)
    monkeypatch.setattr("tidemill.pipelines.spark.sinks.start_pipeline", lambda *_, **__: Told({}))
    assert main(["pipeline", "run", str(root)]) == 0
    status = read_status(root)
    assert status is not None
    assert (status["state"], status["error"]) == ("stopped", None)
    assert {each: signal.getsignal(each) for each in handlers} == handlers


def test_who_is_stopped_while_spark_starts_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "shop"
    write_example(root, "127.0.0.1:9092")

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            yield
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("tidemill.cli.pipeline.existing_topics", lambda *_: None)
    monkeypatch.setattr("tidemill.pipelines.spark.remote.session_for", session)
    assert main(["pipeline", "run", str(root)]) == 130
    status = read_status(root)
    assert status is not None
    assert (status["state"], status["error"]) == ("stopped", None)


def test_what_a_declarative_pipeline_cannot_write_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    with pytest.raises(WrongSpec, match=r"sinks\.revenue is of kind topic in mode update; the declarative runner"):
        check_declarative(load(tmp_path / "shop", sink_types()))
    assert main(["pipeline", "run", str(tmp_path / "shop"), "--runner", "quick"]) == 2
    assert "there is no runner quick; use one of streaming, declarative" in capsys.readouterr().err
