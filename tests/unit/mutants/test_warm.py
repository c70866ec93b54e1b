"""The process that has collected the tests: it exchanges one function in a forked child and runs chosen tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mutants import warm
from tests.mutants.tree import ROOT

SOURCE = """
def twice(function):
    def called(self):
        return 2 * function(self)
    return called

class Number:
    def __init__(self, value):
        self.value = value

    @property
    def next(self):
        return self.value + 1

    @next.setter
    def next(self, value):
        self.value = value - 1

    @twice
    def doubled(self):
        return self.value

def closed(start):
    def more():
        return start
    return more
"""
TESTS = """
import time
from patched import Number, closed

def test_next(tmp_path):
    number = Number(1)
    assert number.next == 2
    number.next = 5
    assert number.next == 5

def test_doubled():
    assert Number(3).doubled() == 6

def test_closed():
    assert closed(1)() == 1

def test_waits_without_end():
    time.sleep(600)
"""


class Trials:
    """Asks the process, with a source that has one text exchanged."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self._folder = folder
        self._process = process

    def ask(self, line: str) -> list[str]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n").split("\t")

    def run(self, scope: str, old: str, new: str, tests: list[str], limit_s: float = 60) -> list[str]:
        file, original = self._folder / "src" / "patched.py", self._folder / "original"
        original.write_text(SOURCE)
        file.write_text(SOURCE.replace(old, new))
        scratch = self._folder / "scratch"
        scratch.mkdir(exist_ok=True)
        (scratch / "failed").unlink(missing_ok=True)
        names = [f"test_numbers.py::{name}" for name in tests]
        trial = warm.Trial(names, str(scratch), limit_s, str(file) if scope else "", str(original), scope)
        return self.ask(trial.line())


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    folder = tmp_path_factory.mktemp("warm")
    (folder / "src").mkdir()
    (folder / "src" / "patched.py").write_text(SOURCE)
    (folder / "test_numbers.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.warm"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{folder / 'src'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        found = Trials(folder, process)
        start = warm.Start(["test_numbers.py"], str(folder / "output"), str(folder / "numba"), {})
        assert found.ask(start.line()) == [warm.READY], (folder / "output").read_text()
        yield found
        assert process.stdin
        process.stdin.close()


BOTH = ["test_doubled", "test_next"]


@pytest.mark.parametrize(
    ("scope", "old", "new", "result", "failed"),
    [
        ("", "", "", warm.PASSED, ""),
        ("Number.next", "value + 1", "value - 1", warm.FAILED, "test_next"),
        ("Number.next", "value - 1", "value + 1", warm.FAILED, "test_next"),
        ("Number.next", "value + 1", "value + 1 + 0", warm.PASSED, ""),
        ("Number.doubled", "\n        return self.value\n", "\n        return -1\n", warm.FAILED, "test_doubled"),
        ("Number.__init__", "self.value = value\n", "self.value = (\n7)\n", warm.FAILED, "test_doubled"),
        ("Number.next", "", "", warm.NOT_PATCHED, ""),
    ],
)
def test_one_function_is_exchanged(trials: Trials, scope: str, old: str, new: str, result: str, failed: str) -> None:
    assert trials.run(scope, old, new, BOTH) == [result, failed and f"test_numbers.py::{failed}"]


def test_a_decorator_that_has_already_run_is_not_exchanged(trials: Trials) -> None:
    assert trials.run("twice.<locals>.called", "2 *", "3 *", BOTH) == [warm.NOT_PATCHED, ""]


def test_a_mutant_with_fewer_variables_is_patched_where_it_is_a_whole_function(trials: Trials) -> None:
    result = trials.run("closed", "        return start", "        return None", ["test_closed"])
    assert result == [warm.FAILED, "test_numbers.py::test_closed"]


def test_a_trial_leaves_nothing_for_the_next_one(trials: Trials) -> None:
    assert trials.run("Number.next", "value + 1", "value - 1", ["test_next"])[0] == warm.FAILED
    assert trials.run("", "", "", ["test_next"])[0] == warm.PASSED


def test_tests_that_wait_without_end_are_ended(trials: Trials) -> None:
    assert trials.run("", "", "", ["test_waits_without_end"], limit_s=0.2)[0] == warm.TIMED_OUT
