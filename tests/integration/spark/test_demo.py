"""`tidemill demo` with Spark: everything is aggregated once; Ctrl-C ends it at any moment; no process stays behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset
import pytest
from tests.support.waiting import eventually

ANY_PORTS = ("--kafka", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
PATIENCE_S = 180
GONE_S = 60


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start_one(*words: str) -> "subprocess.Popen[str]":
        common = ("--json", "--rate", "100", "--data-dir", str(tmp_path), "--patience", str(PATIENCE_S), *ANY_PORTS)
        command = [sys.executable, "-m", "tidemill", "demo", *common, *words]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        )
        return started[-1]

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def of_session(leader: int) -> list[str]:
    """The processes of a session that still run; zombie processes do not count."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.name()}")
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def in_parquet(folder: Path) -> int:
    """Orders by the lake: totals only grow, so the largest row of a minute and item is the newest."""
    rows = pyarrow.dataset.dataset(folder, format="parquet").to_table(["minute", "item", "orders"])
    totals = rows.group_by(["minute", "item"]).aggregate([("orders", "max")])
    return int(sum(totals["orders_max"].to_pylist()))


def child_of(process: "subprocess.Popen[str]") -> int:
    """The program of the pipeline, which leads a session of its own."""
    (child,) = eventually(psutil.Process(process.pid).children, within_s=PATIENCE_S)
    return int(child.pid)


def until_gone(leader: int) -> None:
    eventually(lambda: not of_session(leader), "processes are left", within_s=GONE_S)


@pytest.mark.timeout(300)
def test_orders_become_revenue_once_and_nothing_stays_behind(start: Start, tmp_path: Path) -> None:
    demo = start("--duration", "12")  # no longer than Spark takes to start; reminders fall due meanwhile
    leader = child_of(demo)
    out, errors = demo.communicate(timeout=PATIENCE_S + 100)
    assert (demo.returncode, errors.splitlines()[-1]) == (0, "stopping"), errors
    reported: dict[str, Any] = json.loads(out)
    assert reported["drained"], (reported, errors)
    assert (
        reported["orders_written"] == reported["orders_in_topic"] == reported["orders_aggregated"] == reported["rows"]
    )
    assert reported["orders_per_s"] == pytest.approx(reported["orders_written"] / reported["seconds"], rel=0.02)
    assert in_parquet(tmp_path / "revenue") == reported["orders_aggregated"]
    assert (reported["lag"], reported["reminders_early"]) == (0, 0)
    assert reported["reminders_delivered"] > 0
    until_gone(leader)


@pytest.mark.timeout(300)
def test_ctrl_c_ends_it_while_the_jvm_starts(start: Start) -> None:
    demo = start()
    leader = child_of(demo)
    eventually(lambda: any("java" in each for each in of_session(leader)), within_s=PATIENCE_S)
    assert demo.poll() is None
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    out, errors = demo.communicate(timeout=GONE_S)
    assert (demo.returncode, errors.splitlines()[-1]) == (0, "stopping"), errors
    reported: dict[str, Any] = json.loads(out)
    assert (reported["spark"], reported["drained"]) == ("stopped", False)
    assert reported["orders_written"] == reported["orders_in_topic"]
    until_gone(leader)
