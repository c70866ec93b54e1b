"""The process that runs tests in forked children: results, limits, and the choice of tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mutants.forks import TIME_LIMIT_CODE, Request
from tests.mutants.tree import ROOT

TESTS = """
def test_passes():
    pass

def test_fails():
    assert not "a mutant"

def test_calculates_without_end():
    while True:
        pass

def test_waits_without_end():
    import threading
    threading.Event().wait()
"""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    folder = tmp_path_factory.mktemp("tree")
    (folder / "test_one.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.forks"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.mark.parametrize(
    ("chosen", "limits", "limit_s", "code"),
    [
        (["test_passes"], {}, 60, 0),
        (["test_fails"], {}, 60, 1),
        (["test_passes", "test_fails"], {}, 60, 1),
        (["test_calculates_without_end"], {"test_calculates_without_end": (0.2, 60.0)}, 60, TIME_LIMIT_CODE),
        (["test_waits_without_end"], {"test_waits_without_end": (60.0, 0.2)}, 60, 1),
        (["test_waits_without_end"], {}, 0.2, TIME_LIMIT_CODE),
    ],
)
def test_chosen_tests_run_within_their_limits(
    forks: "subprocess.Popen[str]",
    tmp_path: Path,
    chosen: list[str],
    limits: dict[str, tuple[float, float]],
    limit_s: float,
    code: int,
) -> None:
    request = Request(
        files=["test_one.py"],
        scratch=str(tmp_path),
        output=str(tmp_path / "output"),
        compiled=str(tmp_path / "numba"),
        limit_s=limit_s,
        chosen=[f"test_one.py::{name}" for name in chosen],
        limits={f"test_one.py::{name}": limit for name, limit in limits.items()},
    )
    assert forks.stdin
    assert forks.stdout
    forks.stdin.write(request.line())
    forks.stdin.flush()
    assert int(forks.stdout.readline()) == code, (tmp_path / "output").read_text()
