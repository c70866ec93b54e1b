"""The runner notices tests whose process ended before they had a result, and its second try runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# A worker that is about to run `test_victim` ends as `HOW` says; its hook is outside of what a test may do wrong.
PLANT = """
import os
import pytest
from tests.support.unreported import pytest_configure

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    how, in_worker = os.environ["HOW"], hasattr(item.config, "workerinput")
    if item.name == "test_victim" and how == "exit" and in_worker:
        os._exit(9)
    if item.name == "test_victim" and (how == "always" or (how == "internal" and in_worker)):
        raise SystemError("AST constructor recursion depth mismatch")
"""

TESTS = """
def test_before(): pass
def test_victim(): pass
def test_after(): pass
def test_last(): pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(PLANT)
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def run(suite: Path, how: str, *args: str) -> tuple[int, str]:
    """Exit status and output of pytest over the planted suite, as `make unit` calls it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:tidemill", "-p", "no:hypothesispytest", *args],
        cwd=suite,
        env=environment | {"PYTHONPATH": str(ROOT), "HOW": how},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def lost(output: str) -> list[str]:
    return [line.split()[1].partition("::")[2] for line in output.splitlines() if line.startswith("LOST ")]


IN_WORKER = ("-n", "1", "--dist", "loadfile", "--max-worker-restart", "0")
AGAIN = ("--last-failed", "--last-failed-no-failures", "none")


@pytest.mark.parametrize(
    ("how", "missing"),
    [("internal", ["test_after", "test_last", "test_victim"]), ("exit", ["test_after", "test_last"])],
)
def test_tests_of_a_dead_process_are_named_and_run_by_the_second_try(suite: Path, how: str, missing: list[str]) -> None:
    status, output = run(suite, how, *IN_WORKER)
    assert status == 1, output
    assert lost(output) == missing

    status, output = run(suite, how, *AGAIN)
    assert status == 0, output
    assert "3 passed" in output


def test_a_process_that_takes_a_dead_ones_place_brings_nothing_back(suite: Path) -> None:
    (suite / "test_some.py").write_text("def test_before(): pass\ndef test_victim(): pass\n")
    status, output = run(suite, "exit", "-n", "1", "--dist", "loadfile", "--max-worker-restart", "1")
    assert (status, lost(output)) == (1, [])
    assert "1 passed" in output


def test_a_test_without_a_result_fails_one_process_too(suite: Path) -> None:
    """As the second try is."""
    status, output = run(suite, "always")
    assert status == 1, output
    assert lost(output) == ["test_after", "test_last", "test_victim"]


def test_tests_that_the_user_leaves_out_are_not_reported_as_lost(suite: Path) -> None:
    (suite / "test_some.py").write_text("def test_bad(): assert False\n" + TESTS)
    status, output = run(suite, "never", "-x")
    assert (status, lost(output)) == (1, [])
    status, output = run(suite, "never", "--collect-only")
    assert (status, lost(output)) == (0, [])
