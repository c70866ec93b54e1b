"""`tidemill demo` with Spark: one run, ended by Ctrl-C; everything is aggregated once, and no process stays behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset
import pytest

ANY_PORTS = ("--kafka", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
PATIENCE_S = 120
GONE_S = 30


@pytest.fixture
def demo(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    words = ("--json", "--rate", "100", "--data-dir", str(tmp_path), "--patience", str(PATIENCE_S), *ANY_PORTS)
    command = [sys.executable, "-m", "tidemill", "demo", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def of_session(leader: int) -> list[str]:
    """The processes of a session that still run; those that nobody has reaped yet do not count."""
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


@pytest.mark.timeout(240)
def test_orders_become_revenue_once_and_nothing_stays_behind(demo: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert demo.stderr is not None
    said: list[str] = []
    for line in demo.stderr:
        said.append(line)
        if line.startswith(("spark ", "without Spark")):
            break
    assert "joined" in said[-1], said
    (leader,) = [child.pid for child in psutil.Process(demo.pid).children()]
    assert any("java" in each for each in of_session(leader))
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
    out, errors = demo.communicate(timeout=3 * PATIENCE_S)
    assert (demo.returncode, errors) == (0, "stopping\n")
    told: dict[str, Any] = json.loads(out)
    assert told["drained"], told
    assert told["orders_written"] == told["orders_in_topic"] == told["orders_aggregated"] == told["rows"]
    assert in_parquet(tmp_path / "revenue") == told["orders_aggregated"]
    assert (told["lag"], told["reminders_early"]) == (0, 0)
    assert told["reminders_delivered"] > 0
    deadline = time.monotonic() + GONE_S
    while (left := of_session(leader)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
