"""Which tests reach which statements: in tests, in fixtures, on threads and while modules are imported."""

import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
from tests.mutants.coverage import Coverage, stages_of
from tests.mutants.marks import statement_key
from tests.mutants.mutations import Mutation, mutations
from tests.mutants.tree import ROOT

SOURCE = """
def at_import():
    return 1

VALUE = at_import()

class Store:
    def add(self):
        'A docstring.'
        return [each for each in map(lambda number: inner(number), (1, 2))]

def inner(number, limit=7):
    def nested():
        return number
    if number > 2:
        return 3
    elif number == 2:
        return 4
    match nested():
        case 1 if limit:
            pass
    return nested()

def unused():
    return 5
"""
TESTS = """
import threading
import pytest
import covered as source

@pytest.fixture(scope="module")
def shared():
    return source.inner(1)

def test_calls(shared):
    thread = threading.Thread(target=source.Store().add)
    thread.start()
    thread.join()
    assert source.Store.add.__doc__ == "A docstring."

def test_other():
    pass
"""
PROGRAM = """
import sys
from pathlib import Path
import pytest
from tests.mutants.coverage import Recorder
from tests.mutants.marks import Marks
folder = Path(sys.argv[1])
recorder = Recorder(Marks(folder / "source", lambda module: True))
options = ["-q", "-c", "/dev/null", "--rootdir", str(folder), "-p", "no:cacheprovider"]
code = pytest.main([*options, str(folder)], [recorder])
recorder.save(folder / "coverage.json")
sys.exit(code)
"""
MODULE = PurePosixPath("covered.py")
CALLS = {"test_calls.py::test_calls"}
BOTH = {"test_calls.py::test_calls", "test_calls.py::test_other"}


@pytest.fixture(scope="module")
def coverage(tmp_path_factory: pytest.TempPathFactory) -> Coverage:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "source").mkdir()
    (folder / "source" / "covered.py").write_text(SOURCE)
    (folder / "test_calls.py").write_text(TESTS)
    environment = {"PYTHONPATH": f"{folder / 'source'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], check=True, env=environment, capture_output=True)
    return Coverage.load(folder / "coverage.json")


@pytest.mark.parametrize(
    ("before", "after", "tests"),
    [
        ("return [each for each in map(lambda number: inner(number), (1, 2))]", "return None", CALLS),
        ("return number", "return None", BOTH),  # a fixture may serve every test of its file
        ("if number > 2:", "if number >= 2:", BOTH),
        ("if number == 2:", "if number != 2:", BOTH),
        ("return 3", "return None", set()),
        ("return 4", "return None", CALLS),
        ("case 1 if limit:", "case 1 if not limit:", BOTH),
        ("def inner(number, limit=7):", "def inner(number, limit=8):", BOTH),
        ("return 5", "return None", set()),
    ],
)
def test_a_mutation_has_the_tests_that_reach_its_statement(
    coverage: Coverage, before: str, after: str, tests: set[str]
) -> None:
    [found] = (each for each in mutations(SOURCE) if (each.before, each.after) == (before, after))
    assert coverage.tests_of(MODULE, found) == tests


def test_a_module_has_the_tests_that_reach_any_of_its_functions(coverage: Coverage) -> None:
    outside = Mutation(1, "<module>", "", None, "x = 1", "x = 2", 0, 1, "2")
    assert coverage.tests_of(MODULE, outside) == BOTH
    assert coverage.is_imported(MODULE, "at_import")
    assert not coverage.is_imported(MODULE, "inner")
    assert set(coverage.cpu_s) == set(coverage.wall_s) == BOTH


def test_fast_tests_and_those_of_the_own_file_are_first(tmp_path: Path) -> None:
    times = {"a::1": 0.03, "b::1": 0.02, "b::2": 0.001, "b::3": 1.0, "a::2": 2.0, "b::4": 3.0}
    Coverage({statement_key(MODULE, "f", (2, 4)): set(times)}, set(), times, times).save(tmp_path / "coverage")
    coverage = Coverage.load(tmp_path / "coverage")
    expected = ["b::2", "a::1", "b::1", "a::2", "b::3", "b::4"]
    assert coverage.in_order(set(times), {"a"}) == expected
    coverage.leave_out("b::1")
    mutation = Mutation(2, "f", "f", (2, 4), "x = 1", "x = 2", 0, 1, "2")
    assert coverage.tests_of(MODULE, mutation) == {*times} - {"b::1"}


@pytest.mark.parametrize(
    ("own", "near", "is_complete", "stages"),
    [
        ("ab", "bc", False, ["b", "c", "ad"]),
        ("ab", "bc", True, ["b", "c"]),
        ("ab", "cd", False, ["ab", "cd"]),
        ("ab", "", False, ["ab", "cd"]),
        ("", "cd", False, ["cd", "ab"]),
        ("", "", False, ["abcd"]),
    ],
)
def test_a_mutant_outside_of_functions_meets_every_test_once(
    own: str, near: str, is_complete: bool, stages: list[str]
) -> None:
    found = stages_of(set("abcd"), set(own), set(near), is_complete=is_complete)
    assert found == [set(each) for each in stages]
