"""A copy of the work tree in which one mutant at a time is made and tested."""

import compileall
import hashlib
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

from tests.mutants import warm
from tests.mutants.coverage import Coverage, file_of, stages_of
from tests.mutants.forks import TIME_LIMIT_CODE, Request
from tests.mutants.mutations import Mutation
from tests.mutants.targets import CALLERS_OF_KERNELS, Kernels, changed_kernels, files_of, is_own, package_tests
from tests.mutants.warm import PASSED

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mutants_cache"
"""The recorded coverage of each package, as long as nothing changes that it depends on."""
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "data", "site")
CPU_FACTOR, CPU_S_MIN = 5, 2.0
WALL_FACTOR, WALL_S_MIN = 10, 20.0
"""A test may take so many times what it took on unchanged source, and at least so many seconds."""
COMPILE_S = 60.0
"""What compiling the kernels may add to the CPU time of the test that needs them first."""
BASELINE_LIMIT_S = 1800.0
OUTPUT_CHARACTERS = 4000
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests say about a mutant. `test` is the one that failed, if it is known."""

    killed: bool
    timed_out: bool = False
    test: str = ""


SURVIVED = Verdict(killed=False)


class MutantTree:
    """Makes mutants in its copy of the tree, and runs the tests that may find them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "tree"
        self._source = self._root / "src"
        self._compiled = folder / "numba"
        self._compiled.mkdir()
        self._output = folder / "output"
        self._original = folder / "original.py"
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # The bytecode is trusted as it is: a mutant of the same size in the same second would look unchanged.
        mode = PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(self._source, quiet=2, invalidation_mode=mode)
        self._coverage: dict[tuple[str, ...], Coverage] = {}
        self._passed: set[str] = set()
        self._preload: list[str] = []
        self._forks = self._python("tests.mutants.forks")
        self._warm: subprocess.Popen[str] | None = None
        self._warm_tests: tuple[str, ...] = ()

    def close(self) -> None:
        """End the processes that run the tests."""
        for process in (self._forks, self._warm):
            if process:
                assert process.stdin
                process.stdin.close()
                process.wait()

    def kills(self, mutant: Mutant) -> Verdict:
        """Whether a test fails or takes too long with a mutant."""
        is_compiled = changed_kernels(mutant.module, mutant.mutation.function) is not Kernels.NONE
        coverage, change = self._warm_up(package_tests(mutant.module)), mutant.mutation
        tests = coverage.tests_of(mutant.module, change)
        if change.scope and not tests and not is_compiled and not coverage.is_imported(mutant.module, change.scope):
            return SURVIVED  # no test reaches it
        place = self._source / mutant.module
        bytecode = next((place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"))
        source, compiled, times = place.read_text(), bytecode.read_bytes(), place.stat()
        self._original.write_text(source)
        try:
            bytecode.unlink()
            place.write_text(change.apply(source))
            is_patched = change.position and not is_compiled and not coverage.is_imported(mutant.module, change.scope)
            verdict = self._patched(mutant, tests) if is_patched else None
            verdict = verdict or self._imported(mutant)
        finally:
            place.write_text(source)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))  # kernels are cached by it
            bytecode.write_bytes(compiled)
        if verdict.test and not self._is_sound(mutant, verdict.test):
            return self.kills(mutant)
        return verdict

    def _is_sound(self, mutant: Mutant, test: str) -> bool:
        """Whether a test that failed with a mutant passes without it. If not, it counts for no mutant."""
        if test in self._passed:
            return True
        coverage = self.coverage(package_tests(mutant.module))
        if PASSED in {self._try(mutant, [test])[0] for _ in range(2)}:
            self._passed.add(test)
            return True
        print(f"{test} fails without a mutant and is left out", file=sys.stderr)
        coverage.leave_out(test)
        return False

    def _patched(self, mutant: Mutant, tests: set[str]) -> Verdict | None:
        """Exchange the function in the process that has imported it. None: that is not possible."""
        result, test = self._try(mutant, self._in_order(mutant, tests), mutant.mutation.scope)
        if result == warm.NOT_PATCHED:
            return None
        return Verdict(result != PASSED, result == warm.TIMED_OUT, test)

    def _try(self, mutant: Mutant, tests: list[str], scope: str = "") -> tuple[str, str]:
        coverage = self._warm_up(package_tests(mutant.module))
        file = str(self._source / mutant.module) if scope else ""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as scratch:
            trial = warm.Trial(tests, scratch, _limit_s(coverage, tests), file, str(self._original), scope)
            result, _, test = _ask(self._warm, trial.line()).partition("\t")
        return result, test

    def _warm_up(self, tests: tuple[str, ...]) -> Coverage:
        """One process at a time has imported the tests of a package."""
        coverage = self.coverage(tests)
        if self._warm_tests != tests:
            if self._warm:
                assert self._warm.stdin
                self._warm.stdin.close()
                self._warm.wait()
            self._warm = self._python("tests.mutants.warm")
            limits = _limits(coverage, list(coverage.cpu_s))
            start = warm.Start(files_of(tests, self._root), str(self._output), str(self._compiled), limits)
            self._require(_ask(self._warm, start.line()) == warm.READY, "they could not be collected")
            self._warm_tests = tests
        return coverage

    def _imported(self, mutant: Mutant) -> Verdict:
        """Import the mutated source, then run the tests."""
        for stage in self._stages(mutant):
            if (code := self._run(mutant, stage)) in NOT_RUN:  # by the mutant, or by the environment
                return Verdict(killed=True)
            if code != 0:
                return Verdict(True, code == TIME_LIMIT_CODE)
        return SURVIVED

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            print(self._output.read_text(errors="replace")[-OUTPUT_CHARACTERS:], file=sys.stderr)
            sys.exit(f"the tests fail without a mutant: {what}; the end of their output is above")

    def _stages(self, mutant: Mutant) -> list[list[str]]:
        """The tests that may find a mutant that has to be imported, in runs. A run loads only the files of its tests.

        Those that reach its module are first, because they find most.
        """
        coverage = self.coverage(package_tests(mutant.module))
        near = coverage.tests_of(mutant.module, mutant.mutation)
        if changed_kernels(mutant.module, mutant.mutation.function) is not Kernels.NONE:
            # In one run, because each run compiles the kernels that it needs.
            return [self._in_order(mutant, near | coverage.tests_of_module(CALLERS_OF_KERNELS))]
        own = {test for test in coverage.cpu_s if file_of(test) in self._own_files(mutant)}
        is_complete = bool(mutant.mutation.scope and near)
        stages = stages_of(set(coverage.cpu_s), own, near, is_complete=is_complete)
        return [self._in_order(mutant, stage) for stage in stages]

    def _in_order(self, mutant: Mutant, tests: set[str]) -> list[str]:
        return self.coverage(package_tests(mutant.module)).in_order(tests, self._own_files(mutant))

    def _own_files(self, mutant: Mutant) -> set[str]:
        files = files_of(package_tests(mutant.module), self._root)
        return {file for file in files if is_own(self._root / file, mutant.module)}

    def coverage(self, tests: tuple[str, ...]) -> Coverage:
        """Which tests reach what on unchanged source, and how long they take; they have to pass."""
        if tests not in self._coverage:
            files = files_of(tests, self._root)
            kept = CACHE / f"{self._digest(files)}.json"
            modules = kept.with_suffix(".modules")
            if not kept.exists():
                CACHE.mkdir(exist_ok=True)
                place = self._folder / "coverage.json"
                with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as scratch:
                    compiled, output = str(self._compiled), str(self._output)
                    request = Request(files, scratch, output, compiled, BASELINE_LIMIT_S, record=str(place))
                    code = self._ask(request) and self._ask(request)  # a busy machine gets a second try
                self._require(code == 0, f"exit code {code}")
                shutil.move(place.with_suffix(".modules"), modules)
                shutil.move(place, kept)
            self._coverage[tests] = Coverage.load(kept)
            self._preload = json.loads(modules.read_text())
        return self._coverage[tests]

    def _digest(self, files: Sequence[str]) -> str:
        """What a recorded coverage depends on."""
        tests = {self._root / file for file in files}
        helpers = [file for place in {file.parent for file in tests} for file in place.glob("*.py")]
        support = (self._root / "tests/support").rglob("*.py")
        read = {*tests, *helpers, *support, *self._source.rglob("*.py"), self._root / "tests/conftest.py"}
        digest = hashlib.sha256(" ".join(files).encode())
        for file in sorted(read):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:20]

    def _run(self, mutant: Mutant, tests: Sequence[str]) -> int:
        coverage = self.coverage(package_tests(mutant.module))
        changed = changed_kernels(mutant.module, mutant.mutation.function)
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as scratch:
            compiled = self._compiled if changed is Kernels.NONE else Path(scratch) / "numba"
            if changed is Kernels.OF_ITS_FILE:
                shutil.copytree(self._compiled, compiled)
            extra_s = 0.0 if changed is Kernels.NONE else COMPILE_S
            limits = {test: (cpu + extra_s, wall + extra_s) for test, (cpu, wall) in _limits(coverage, tests).items()}
            files = list(dict.fromkeys(file_of(test) for test in tests))
            limit_s = extra_s + _limit_s(coverage, tests)
            return self._ask(Request(files, scratch, str(self._output), str(compiled), limit_s, list(tests), limits))

    def _ask(self, request: Request) -> int:
        line = replace(request, preload=self._preload).line()
        self._preload = []
        return int(_ask(self._forks, line))

    def _python(self, module: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=self._root,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(self._source), str(self._root)]),
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONHASHSEED": "0",
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{self._folder}/hypothesis",
                "GRPC_ENABLE_FORK_SUPPORT": "false",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def _ask(process: "subprocess.Popen[str] | None", line: str) -> str:
    assert process
    assert process.stdin
    assert process.stdout
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline().rstrip("\n")


def _limit_s(coverage: Coverage, tests: Sequence[str]) -> float:
    return WALL_S_MIN + WALL_FACTOR * sum(coverage.wall_s[test] for test in tests)


def _limits(coverage: Coverage, tests: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The CPU time and the time of each test. Any test of a file may be the one that makes its shared fixtures."""
    cpu_s: dict[str, float] = defaultdict(float)
    wall_s: dict[str, float] = defaultdict(float)
    for test in coverage.cpu_s:
        cpu_s[file_of(test)] = max(cpu_s[file_of(test)], coverage.cpu_s[test])
        wall_s[file_of(test)] = max(wall_s[file_of(test)], coverage.wall_s[test])
    return {
        test: (CPU_S_MIN + CPU_FACTOR * cpu_s[file_of(test)], WALL_S_MIN + WALL_FACTOR * wall_s[file_of(test)])
        for test in tests
    }
