"""A retried test is counted in the summary line and named on the last line, whether it passes then or not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.retried import NAMES_MAX, summary

ROOT = Path(__file__).parents[3]
PLUGIN = "from tests.support.retried import pytest_addoption, pytest_configure"
TESTS = """
from pathlib import Path

def first_time(name):
    marker = Path(__file__).with_name(name)
    fresh = not marker.exists()
    marker.touch()
    return fresh

def test_steady(): pass
def test_passes_then(): assert not first_time("a")
def test_fails_again(): raise AssertionError
"""
FIRST: tuple[str, ...] = ()
SECOND = ("--last-failed", "--last-failed-no-failures", "none", "--second-try")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def run(suite: Path, *args: str) -> tuple[int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:tidemill", "-p", "no:hypothesispytest", *args],
        cwd=suite,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_retried_tests_are_counted_and_named(suite: Path) -> None:
    status, lines = run(suite, *FIRST)
    assert (status, [line for line in lines if "retried" in line]) == (1, []), lines

    status, lines = run(suite, *SECOND)
    assert status == 1, lines
    assert re.match(r"1 failed, 1 passed, .*2 retried in ", lines[-2]), lines
    assert lines[-1] == "retried: 2 (test_some.py::test_passes_then, test_some.py::test_fails_again)"


def test_a_second_try_with_nothing_left_says_nothing(suite: Path) -> None:
    (suite / "test_some.py").write_text("def test_steady(): pass")
    assert run(suite, *FIRST)[0] == 0
    status, lines = run(suite, *SECOND)
    assert status == 5
    assert not any("retried" in line for line in lines), lines


def test_the_line_is_bounded() -> None:
    line = summary([f"test_{number}" for number in range(NAMES_MAX + 3)])
    assert line.startswith(f"retried: {NAMES_MAX + 3} (test_0, test_1,")
    assert line.endswith(f"test_{NAMES_MAX - 1}, and 3 more)")


def test_make_unit_names_what_it_retries() -> None:
    planned = subprocess.run(["make", "-n", "unit"], cwd=ROOT, capture_output=True, text=True, check=True)
    (second,) = (line for line in planned.stdout.splitlines() if "--last-failed " in line)
    assert "--second-try" in second
