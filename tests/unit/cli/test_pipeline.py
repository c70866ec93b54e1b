"""`tidemill pipeline` as far as it needs neither Spark nor a broker."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.cli.main import main
from tidemill.cli.pipeline_lake import batch_reporter
from tidemill.cli.pipeline_options import sole_writer
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.lake.rows import StagedRows, stage_rows
from tidemill.pipelines.run.lock import Busy
from tidemill.pipelines.run.status import read_status
from tidemill.pipelines.spark.queries import Queries
from tidemill.pipelines.spec.example import write_example


def add(root: Path, batch: int, offsets: range) -> None:
    lake = open_lake(root)
    rows = pa.RecordBatch.from_pydict(
        {"topic": ["orders"] * len(offsets), "partition": [0] * len(offsets), "offset": list(offsets)}
    )
    reported = stage_rows(StagedRows(str(lake.root), str(batch)), 0, [rows])
    lake.commit(CommitStep("q", batch), [LakeFile(**row) for each in reported for row in each.to_pylist()], rows.schema)


def test_an_audit_is_a_table_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "orders"
    add(root, 0, range(5))
    assert main(["pipeline", "audit", str(root)]) == 0
    out, _ = capsys.readouterr()
    assert out.splitlines()[1].split() == ["0", "5", "0", "4", "0", "0", "contiguous"]
    add(root, 1, range(7, 9))
    assert main(["pipeline", "audit", str(root), "--json"]) == 1
    out, err = capsys.readouterr()
    reported = json.loads(out)
    assert (reported["ok"], reported["partitions"][0]["verdict"], reported["partitions"][0]["missing"]) == (
        False,
        "holes",
        2,
    )
    assert err.startswith("error: partition 0 of ")
    assert "2 offsets missing, 0 doubled" in err


def test_a_new_pipeline_has_not_run_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "shop"
    assert main(["pipeline", "status", str(tmp_path)]) == 1
    assert "create one with: tidemill pipeline init shop" in capsys.readouterr().err
    assert main(["pipeline", "init", str(root)]) == 0
    assert f"wrote {root / 'pipeline.yml'}" in capsys.readouterr().out
    assert main(["pipeline", "init", str(root)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert main(["pipeline", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"{root} has never run; start it with: tidemill pipeline run {root}\n"


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline.yml").write_text("nme: shop\n", encoding="utf-8")
    assert main(["pipeline", "run", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/pipeline.yml: nme is not known; did you mean name?\n"
    assert main(["pipeline", "audit", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: no lake exists at {tmp_path}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "run shop --conf memory=2g",
            "--conf memory is not a Spark setting; their names look like spark.executor.memory",
        ),
        (
            "run shop --master k8s",
            "--master is k8s; write local[4], spark://host:7077, yarn or k8s://https://host:6443",
        ),
        ("run shop --runner fast", "there is no runner fast; use one of streaming, declarative"),
        ("archive orders --to lake --remote x", "--remote x is not a Spark Connect address; write sc://host:15002"),
        ("report --to shop/pipeline.yml", "--to shop/pipeline.yml is a file; name a folder"),
        *(
            (
                f"{words} {place}",
                f"'{place}' has the scheme {scheme}:, which is not supported; write a local path, or fil",
            )
            for words in ("archive orders --to", "latest orders --to", "report --to", "audit", "compact", "run", "init")
            for place, scheme in (("s3://bucket/lake", "s3"), ("GS:/bucket", "gs"))
        ),
        ("replay hdfs://host/lake --to orders", "'hdfs://host/lake' has the scheme hdfs:, which is not supported"),
        ("report --to plots --topics ,", "--topics names no topic; write for example --topics orders,clicks"),
    ],
)
def test_a_wrong_use_has_an_exit_code_of_its_own(
    words: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["pipeline", "init", "shop"])
    capsys.readouterr()
    assert main(["pipeline", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {line}")
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


def test_a_file_url_is_the_local_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path / "orders", 0, range(5))
    assert main(["pipeline", "audit", f"file://{tmp_path}/orders"]) == 0
    assert "contiguous" in capsys.readouterr().out


def test_reports_of_spark_connect_that_leave_out_the_rows_are_counted_as_none() -> None:
    rows: list[int] = []
    batch_reporter(rows.append, follow=True)({"orders": [{"batchId": 0, "timestamp": "2026-11-16T10:00:00Z"}]})
    assert rows == [0]


def test_one_process_writes_to_a_lake(tmp_path: Path) -> None:
    both, second = sole_writer([tmp_path / "a", tmp_path / "b"]), sole_writer([tmp_path / "b"])
    with both, pytest.raises(Busy, match=r"is working on .*/b; stop it or wait"), second:
        pass
    with sole_writer([tmp_path / "b"]):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_stop_signal_does_not_disturb_a_clean_stop(
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

    class Reported(Queries):
        def ended(self) -> bool:
            os.kill(os.getpid(), number)
            return False

    monkeypatch.setattr("tidemill.cli.pipeline.existing_topics", lambda *_: None)
    monkeypatch.setattr("tidemill.pipelines.spark.remote.session_for", session)
    monkeypatch.setattr("tidemill.pipelines.spark.sinks.start_pipeline", lambda *_, **__: Reported({}))
    assert main(["pipeline", "run", str(root)]) == 0
    status = read_status(root)
    assert status is not None
    assert (status["state"], status["error"]) == ("stopped", None)
    assert {each: signal.getsignal(each) for each in handlers} == handlers


def test_a_signal_while_spark_starts_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
