"""What Spark reports, added up; the status file; the loop around running queries."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.core.progress import SinkProgress, keyless, line
from tidemill.pipelines.run.lock import Busy, hold
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.run.status import SILENT_MS, Reporter, read_status, status_of
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.loading import load


def report(rows: int, end: int, latest: int, *, newest: int | None = None, broken: int = 0) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-16T18:00:00.000Z",
        "batchId": 1,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [{"endOffset": {"orders": {"0": end}, "$ids": {}}, "latestOffset": {"orders": {"0": latest}}}],
        "observedMetrics": {"source_orders": {"newest": newest}, "expectation_sane": {"broken_sane": broken}},
    }


def test_records_without_a_key_are_added_up_over_reports() -> None:
    reports: list[dict[str, Any]] = [
        {"observedMetrics": {"keys": {"keyless": 3}}},
        {"observedMetrics": {"keys": {"keyless": None}}},
        {"observedMetrics": None},
        {"observedMetrics": {"source_orders": {"newest": 5}, "keys": {"keyless": 2}}},
        {},
    ]
    assert keyless(reports) == 5


def test_reports_are_added_up() -> None:
    standing = SinkProgress("out").after([report(10, 10, 40, newest=5_000, broken=2)], 9_000)
    assert (standing.rows, standing.rows_per_s, standing.lag_records, standing.lag_s) == (10, 20.0, 30, 4.0)
    assert dict(standing.broken) == {"sane": 2}
    standing = standing.after([report(30, 40, 40, broken=1), report(0, 40, 40)], 9_000)
    assert (standing.rows, standing.rows_per_s, standing.batches) == (40, 0.0, 2)
    assert (standing.lag_records, standing.lag_s, dict(standing.broken)) == (0, 0.0, {"sane": 3})
    assert line(standing, report(30, 40, 40)) == "18:00:00  out  30 rows  0 rows/s  lag 0  sane broken 3"


def test_the_lag_in_time_is_that_of_the_newest_row_of_all_sources() -> None:
    found = report(10, 10, 40, newest=5_000)
    found["observedMetrics"]["source_returns"] = {"newest": 7_000}
    found["observedMetrics"]["source_refunds"] = {"newest": 6_000}
    assert SinkProgress("out").after([found], 9_000).lag_s == 2.0


def test_reports_without_anything_known_change_nothing() -> None:
    standing = SinkProgress("out").after([{"sources": [{"endOffset": None, "latestOffset": None}]}], 1)
    assert standing == SinkProgress("out")


class Script:
    """Queries that report what is written down, and end, fail or run on."""

    def __init__(self, reports: list[dict[str, Any]], failure: str | None = None) -> None:
        self._reports = reports
        self._failure = failure
        self.stopped = 0

    def ended(self) -> bool:
        if not self._reports and self._failure:
            raise PipelineError(self._failure)
        return not self._reports

    def progress(self) -> dict[str, list[dict[str, Any]]]:
        return {"revenue": [self._reports.pop(0)]} if self._reports else {}

    def stop(self) -> None:
        self.stopped += 1


def test_the_status_file_tells_how_it_went(tmp_path: Path) -> None:
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


def test_queries_are_stopped_when_one_fails_or_somebody_says_stop() -> None:
    failing = Script([report(1, 1, 1)], "out: no")
    with pytest.raises(PipelineError, match="out: no"):
        tend(failing, threading.Event(), lambda _: None)
    assert failing.stopped == 1
    stop = threading.Event()
    stop.set()
    endless = Script([report(1, 1, 1)] * 99)
    tend(endless, stop, lambda _: None)
    assert endless.stopped == 1


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


def test_the_status_file_tells_why_a_runner_ended(tmp_path: Path) -> None:
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


def test_offsets_that_are_told_as_text_are_understood() -> None:
    """Spark Connect does that."""
    found = SinkProgress("out").after([report(10, 10, 17)], 1)
    told = report(10, 10, 17)
    for source in told["sources"]:
        source |= {name: json.dumps(source[name]) for name in ("endOffset", "latestOffset")}
    assert SinkProgress("out").after([told], 1) == found
    assert found.lag_records == 7


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        hold(tmp_path / "lock", "shop"),
        pytest.raises(Busy, match=f"process {os.getpid()} is working on shop"),
        hold(tmp_path / "lock", "shop"),
    ):
        pass
    with hold(tmp_path / "lock", "shop"):
        pass
