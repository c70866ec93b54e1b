"""A copy of the work tree in which one mutant at a time is made and tested."""

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from py_compile import PycInvalidationMode

from tests.mutants.coverage import Coverage, function_key
from tests.mutants.forks import TIME_LIMIT_CODE, Request
from tests.mutants.mutations import Mutation
from tests.mutants.targets import Kernels, changed_kernels, files_of, is_own, package_tests

ROOT = Path(__file__).parents[2]
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "data", "site")
CPU_FACTOR, CPU_S_MIN = 5, 3.0
WALL_FACTOR, WALL_S_MIN = 10, 30.0
"""A test may take so many times what it took on unchanged source, and at least so many seconds."""
COMPILE_S = 60.0
"""What compiling the kernels may add to the CPU time of the test that needs them first."""
BASELINE_LIMIT_S = 1800.0
OUTPUT_CHARACTERS = 4000
PASSED = 0
NOT_RUN = frozenset({3, 4, 5})
"""pytest's exit codes for an internal error, wrong usage (or a conftest that fails) and no tests at all."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of a module, by its path below `src`."""

    module: PurePosixPath
    mutation: Mutation

    @property
    def key(self) -> str:
        """What names it in `equivalent.txt`."""
        return f"{self.module}::{self.mutation.function}  {self.mutation.before} -> {self.mutation.after}"

    def __str__(self) -> str:
        change = self.mutation
        return f"src/{self.module}:{change.line}  {change.before} -> {change.after}  (in {change.function})"


class MutantTree:
    """Makes mutants in its copy of the tree, and runs the tests that may find them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "tree"
        self._source = self._root / "src"
        self._compiled = folder / "numba"
        self._compiled.mkdir()
        self._output = folder / "output"
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # The bytecode is trusted as it is: a mutant of the same size in the same second would look unchanged.
        mode = PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(self._source, quiet=2, invalidation_mode=mode)
        self._coverage: dict[tuple[str, ...], Coverage] = {}
        self._checked: set[tuple[str, ...]] = set()
        self._preload: list[str] = []
        self._forks = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.forks"],
            cwd=self._root,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(self._source), str(self._root)]),
                "PYTHONDONTWRITEBYTECODE": "",
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
                "GRPC_ENABLE_FORK_SUPPORT": "false",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process that runs the tests."""
        assert self._forks.stdin
        self._forks.stdin.close()
        self._forks.wait()

    def kills(self, mutant: Mutant) -> tuple[bool, bool]:
        """Whether the tests fail, and whether that was by the time limit."""
        stages = self._stages(mutant)
        self._check(mutant, stages[0])
        place = self._source / mutant.module
        bytecode = next((place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"))
        source, compiled, times = place.read_text(), bytecode.read_bytes(), place.stat()
        code, stage = PASSED, stages[0]
        try:
            bytecode.unlink()
            place.write_text(mutant.mutation.apply(source))
            for stage in stages:
                if (code := self._run(mutant, stage)) != PASSED:
                    break
        finally:
            place.write_text(source)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))  # kernels are cached by it
            bytecode.write_bytes(compiled)
        if code in NOT_RUN:  # by the mutant, or by the environment
            self._checked.discard(package_tests(mutant.module))
            self._check(mutant, stage)
        return code != PASSED, code == TIME_LIMIT_CODE

    def _check(self, mutant: Mutant, stage: Sequence[str]) -> None:
        """Once for each package: the tests pass on unchanged source in this order too, or no result counts."""
        if (tests := package_tests(mutant.module)) not in self._checked:
            self._require_pass(self._run(mutant, stage) and self._run(mutant, stage))
            self._checked.add(tests)

    def _require_pass(self, code: int) -> None:
        if code != PASSED:
            print(self._output.read_text(errors="replace")[-OUTPUT_CHARACTERS:], file=sys.stderr)
            sys.exit(f"the tests fail without a mutant (exit code {code}); the end of their output is above")

    def _stages(self, mutant: Mutant) -> list[list[str]]:
        """The tests that may find a mutant, in runs: those of its module first, because they find most.

        A run loads only the files of its tests.
        """
        coverage = self.coverage(package_tests(mutant.module))
        key = function_key(mutant.module, mutant.mutation.function)
        if (chosen := coverage.tests_of(key)) is None:
            near = coverage.tests_of_module(mutant.module)
            chosen = [*coverage.fastest_first(near), *coverage.fastest_first(set(coverage.cpu_s) - near)]
        else:
            near = set(chosen)
        files = {_file(test) for test in chosen}
        own_files = {file for file in files if is_own(self._root / file, mutant.module)}
        own = [test for test in chosen if _file(test) in own_files]
        others = [test for test in chosen if _file(test) not in own_files]
        runs = [own, [test for test in others if test in near], [test for test in others if test not in near]]
        return [_by_file(run) for run in runs if run]

    def coverage(self, tests: tuple[str, ...]) -> Coverage:
        """Which tests call what on unchanged source, and how long they take; they have to pass."""
        if tests not in self._coverage:
            place = self._folder / "coverage.json"
            files = files_of(tests, self._root)
            with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
                compiled, output = str(self._compiled), str(self._output)
                request = Request(files, scratch, output, compiled, BASELINE_LIMIT_S, record=str(place))
                code = self._ask(request) and self._ask(request)  # a busy machine gets a second try
            self._require_pass(code)
            self._coverage[tests] = Coverage.load(place)
            self._preload = json.loads(place.with_suffix(".modules").read_text())
        return self._coverage[tests]

    def _run(self, mutant: Mutant, tests: Sequence[str]) -> int:
        coverage = self.coverage(package_tests(mutant.module))
        changed = changed_kernels(mutant.module, mutant.mutation.function)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            compiled = self._compiled if changed is Kernels.NONE else Path(scratch) / "numba"
            if changed is Kernels.OF_ITS_FILE:
                shutil.copytree(self._compiled, compiled)
            extra_s = 0.0 if changed is Kernels.NONE else COMPILE_S
            limits = {test: (cpu + extra_s, wall + extra_s) for test, (cpu, wall) in _limits(coverage, tests).items()}
            files = list(dict.fromkeys(_file(test) for test in tests))
            limit_s = WALL_S_MIN + extra_s + WALL_FACTOR * sum(coverage.wall_s[test] for test in tests)
            return self._ask(Request(files, scratch, str(self._output), str(compiled), limit_s, list(tests), limits))

    def _ask(self, request: Request) -> int:
        assert self._forks.stdin
        assert self._forks.stdout
        self._forks.stdin.write(replace(request, preload=self._preload).line())
        self._forks.stdin.flush()
        self._preload = []
        return int(self._forks.stdout.readline())


def _limits(coverage: Coverage, tests: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The CPU time and the time of each test. Any test of a file may be the one that makes its shared fixtures."""
    cpu_s: dict[str, float] = defaultdict(float)
    wall_s: dict[str, float] = defaultdict(float)
    for test in coverage.cpu_s:
        cpu_s[_file(test)] = max(cpu_s[_file(test)], coverage.cpu_s[test])
        wall_s[_file(test)] = max(wall_s[_file(test)], coverage.wall_s[test])
    return {
        test: (CPU_S_MIN + CPU_FACTOR * cpu_s[_file(test)], WALL_S_MIN + WALL_FACTOR * wall_s[_file(test)])
        for test in tests
    }


def _by_file(tests: Sequence[str]) -> list[str]:
    """The tests of a file one after the other, so that they share its fixtures. The file of the first test is first."""
    places: dict[str, int] = {}
    for test in tests:
        places.setdefault(_file(test), len(places))
    return sorted(tests, key=lambda test: places[_file(test)])


def _file(test: str) -> str:
    return test.partition("::")[0]
