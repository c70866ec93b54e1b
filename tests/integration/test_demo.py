"""`tidemill demo` without Spark: quick; with it, see tests/integration/spark/test_demo.py."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 120
ANY_PORTS = ("--kafka", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
PROGRAM = (sys.executable, "-m", "tidemill", "demo", *ANY_PORTS)


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def document(*words: str) -> dict[str, Any]:
    ran = run("--json", *words)
    assert ran.returncode == 0, ran
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def start_one(*words: str, **environ: str) -> "subprocess.Popen[str]":
        started.append(
            subprocess.Popen(
                [*PROGRAM, *words],
                env=os.environ | environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(process: "subprocess.Popen[str]", pattern: str) -> list[str]:
    """The lines up to the first that has the pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"no {pattern!r} in {lines}")


def interrupt(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Ctrl-C as a terminal sends it: to the whole process group."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=LIMIT_S)


def test_one_document_for_programs() -> None:
    reported = document("--no-spark", "--duration", "2", "--rate", "300", "--seed", "5")
    assert reported["orders_written"] > 0
    assert reported["orders_in_topic"] == reported["orders_written"]
    assert (reported["spark"], reported["drained"], reported["seed"]) == ("off", False, 5)
    assert reported["reminders_early"] == 0


def test_ctrl_c_ends_everything_in_order(start: Any) -> None:
    demo = start("--no-spark")
    lines = until(demo, r"reminders [1-9]")
    assert [line.split()[0] for line in lines[:3]] == ["kafka", "grpc", "console"]
    out, errors = interrupt(demo)
    assert (demo.returncode, errors) == (0, "")
    assert re.search(r"^orders +[\d,]+ written in ", out, re.MULTILINE)
    assert re.search(r"^reminders +[\d,]+ delivered, [\d,]+ not due yet, none early", out, re.MULTILINE)


def test_the_demo_without_java_reports_it_and_continues(start: Any, tmp_path: Path) -> None:
    demo = start(JAVA_HOME=str(tmp_path))
    lines = until(demo, "without Spark")
    assert lines[-1].startswith(f"without Spark: JAVA_HOME is {tmp_path}, which has no bin/java; Spark needs Java")
    until(demo, r"reminders [1-9]")
    out, errors = interrupt(demo)
    assert (demo.returncode, errors) == (0, "")
    assert "revenue    spark unavailable: JAVA_HOME" in out


def test_data_that_stays(tmp_path: Path) -> None:
    words = ("--no-spark", "--duration", "1", "--data-dir", str(tmp_path / "kept"))
    first, second = document(*words), document(*words)
    assert second["orders_in_topic"] == first["orders_written"] + second["orders_written"]


def test_a_table_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    words = [*PROGRAM, "--no-spark", "--duration", "2"]
    child = subprocess.Popen(words, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 1.0)[0]:
                try:
                    shown += os.read(ours, 65_536)
                except OSError:  # how Linux says that the other end is closed
                    break
        assert child.wait(LIMIT_S) == 0
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        os.close(ours)
    text = shown.decode()
    assert "Ctrl-C stops everything" in text
    assert "reminders" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kafka", "none"], "needs its Kafka, gRPC and HTTP servers"),
        (["--rate", "-1"], "--rate"),
        (["--kafka", "x"], "not host:port"),
    ],
)
def test_wrong_use(words: list[str], said: str) -> None:
    ran = run("--no-spark", *words)
    assert ran.returncode in {1, 2}
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
