"""Which tests call which functions: calls in tests, in fixtures, on threads and while modules are imported."""

import subprocess
import sys
from pathlib import Path, PurePosixPath

from tests.mutants.coverage import Coverage, function_key
from tests.mutants.tree import ROOT

SOURCE = """
def at_import():
    return 1

VALUE = at_import()

class Store:
    def add(self):
        return [each for each in map(lambda number: inner(number), (1, 2))]

def inner(number):
    def nested():
        return number
    return nested()

def unused():
    pass
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

def test_other():
    pass
"""


PROGRAM = """
import sys
from pathlib import Path
import pytest
from tests.mutants.coverage import Recorder
folder = Path(sys.argv[1])
recorder = Recorder(folder / "source")
options = ["-q", "-c", "/dev/null", "--rootdir", str(folder), "-p", "no:cacheprovider"]
code = pytest.main([*options, str(folder)], [recorder])
sys.settrace(None)
recorder.save(folder / "coverage.json")
sys.exit(code)
"""


def test_calls_are_recorded_for_tests_fixtures_threads_and_imports(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "covered.py").write_text(SOURCE)
    (tmp_path / "test_calls.py").write_text(TESTS)
    environment = {"PYTHONPATH": f"{tmp_path / 'source'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, env=environment, capture_output=True)
    coverage = Coverage.load(tmp_path / "coverage.json")
    module = PurePosixPath("covered.py")
    both = {"test_calls.py::test_calls", "test_calls.py::test_other"}
    assert coverage.callers[function_key(module, "Store.add")] == {"test_calls.py::test_calls"}
    assert coverage.callers[function_key(module, "inner")] == both, "a fixture may serve every test of its file"
    assert coverage.callers[function_key(module, "inner.nested")] == both
    assert coverage.tests_of(function_key(module, "at_import")) is None
    assert coverage.tests_of(function_key(module, "<module>")) is None
    assert coverage.tests_of(function_key(module, "unused")) is None
    assert coverage.tests_of_module(module) == both
    assert set(coverage.cpu_s) == set(coverage.wall_s) == both


def test_the_fastest_test_is_first(tmp_path: Path) -> None:
    place = tmp_path / "coverage.json"
    Coverage({"a.py::f": {"slow", "fast", "medium"}}, set(), {"slow": 3.0, "fast": 1.0, "medium": 2.0}, {}).save(place)
    coverage = Coverage.load(place)
    assert coverage.tests_of("a.py::f") == ["fast", "medium", "slow"]
    assert coverage.tests_of("a.py::g") is None
