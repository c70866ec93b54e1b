"""The status file: what a runner writes, and what is read when it was killed or hangs."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from tests.unit.pipelines.run.scripted_queries import Script, report

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.run.status import SILENT_MS, Reporter, read_status, status_of
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.loading import load


def test_the_status_file_has_the_result(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    said: list[str] = []
    reporter = Reporter(load(tmp_path / "shop", sink_types()), said.append, lambda: 10_000)
    queries = Script([report(10, 10, 10), report(5, 15, 15)])
    tend(queries, threading.Event(), reporter)
    reporter.keep("stopped")
    status = status_of(tmp_path / "shop", 10_000)
    assert status is not None
    assert (status["pipeline"], status["state"], status["pid"], status["error"]) == (
        "shop",
        "stopped",
        os.getpid(),
        None,
    )
    assert [(sink["sink"], sink["rows"]) for sink in status["sinks"]] == [("revenue", 15), ("files", 0)]
    assert len(said) == 2
    assert queries.stopped == 1


def test_a_runner_that_was_killed_or_hangs_is_not_running(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    assert status_of(tmp_path / "shop", 1) is None
    reporter = Reporter(load(tmp_path / "shop", sink_types()), lambda _: None, lambda: 1)
    reporter.keep("running")

    def state(now_ms: int = 1) -> str:
        found = status_of(tmp_path / "shop", now_ms)
        assert found is not None
        return str(found["state"])

    assert (state(), state(SILENT_MS + 2)) == ("running", "silent")
    path = tmp_path / "shop" / ".tidemill" / "status.json"
    kept = path.read_text()
    with subprocess.Popen(["true"]) as process:
        child = process.pid
    path.write_text(kept.replace(f'"pid": {os.getpid()}', f'"pid": {child}'))
    assert state() == "killed"
    path.write_text(kept.replace('"born": "', '"born": "1'))
    assert state() == "killed", "another process has the number now"
    elsewhere = json.loads(kept) | {"pid": child, "host": "another"}
    path.write_text(json.dumps(elsewhere))
    assert (state(), state(SILENT_MS + 2)) == ("running", "silent"), "its processes cannot be seen from here"
    for damaged in ("{", "{}", "[]"):
        path.write_text(damaged)
        with pytest.raises(PipelineError, match="is damaged"):
            status_of(tmp_path / "shop", 1)


def test_the_status_file_has_the_reason_why_a_runner_ended(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    reporter = Reporter(load(tmp_path / "shop", sink_types()), lambda _: None, lambda: 1)

    def ended(error: BaseException | None) -> tuple[str, str | None]:
        with contextlib.suppress(BaseException), reporter:
            started = read_status(tmp_path / "shop")
            assert started is not None
            assert started["state"] == "starting"
            if error is not None:
                raise error
        found = read_status(tmp_path / "shop")
        assert found is not None
        return found["state"], found["error"]

    assert ended(None) == ("stopped", None)
    assert ended(KeyboardInterrupt()) == ("stopped", None)
    assert ended(PipelineError("out: no\nmore")) == ("failed", "out: no more")
