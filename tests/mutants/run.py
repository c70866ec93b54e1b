"""Mutation tests: change one thing in a module, run the tests of its package, and list the changes that no test finds.

    python -m tests.mutants.run [--seed N] [--count 160] [--only PREFIX] [--goal 95] [--json]

The mutants are made and tested in a temporary copy of the work tree, so the tree can be edited during a run. A mutant
is killed when a test fails or when the tests exceed the time limit. Mutants that change nothing a caller can see are
named in `equivalent.txt`.
"""

import argparse
import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from py_compile import PycInvalidationMode
from random import Random

from benchmarks.machine import describe
from tests.mutants.mutations import Mutation, mutations
from tests.mutants.targets import is_compiled, is_target, package_tests, stages

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "data", "site")
LIMIT_FACTOR = 3
LIMIT_S_MIN = 30.0
"""A mutant may take three times as long as the unchanged source, and at least so long."""
TEST_LIMIT_S = 30
"""The limit of one test; on the unchanged source each takes a few seconds."""
BASELINE_LIMIT_S = 600.0
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


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    killed: int = 0
    timed_out: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """Mutants that tests ran against."""
        return self.killed + len(self.survivors)

    @property
    def percent(self) -> float:
        """The share of killed mutants, without the equivalent ones."""
        return 100 * self.killed / self.tested if self.tested else 100.0

    def summary(self) -> str:
        """The last line of a run."""
        parts = f"{self.timed_out} of them by the time limit, {self.equivalent} equivalent left out, seed {self.seed}"
        return f"killed {self.killed} of {self.tested} ({self.percent:.1f} %); {parts}"


class MutantTree:
    """A copy of the work tree in which one mutant at a time is made and tested."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "tree"
        self._source = self._root / "src"
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # The bytecode is trusted as it is: a mutant of the same size in the same second would look unchanged.
        mode = PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(self._source, quiet=2, invalidation_mode=mode)
        self._seconds: dict[tuple[str, ...], float] = {}

    def kills(self, mutant: Mutant) -> tuple[bool, bool]:
        """Whether the tests fail, and whether that was by the time limit."""
        tests = package_tests(mutant.module)
        limit = max(LIMIT_S_MIN, LIMIT_FACTOR * self.baseline(tests))
        place = self._source / mutant.module
        bytecode = next((place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"))
        source, compiled = place.read_text(), bytecode.read_bytes()
        try:
            bytecode.unlink()
            place.write_text(mutant.mutation.apply(source))
            for files in stages(tests, mutant.module, self._root):
                if (code := self._pytest(files, limit, compiles=is_compiled(mutant.module))) != PASSED:
                    break
        finally:
            place.write_text(source)
            bytecode.write_bytes(compiled)
        if code in NOT_RUN:  # by the mutant, or by the environment: then no result counts
            del self._seconds[tests]
            self.baseline(tests)
        return code != PASSED, code is None

    def baseline(self, tests: tuple[str, ...]) -> float:
        """The seconds that the tests take on unchanged source; they have to pass."""
        if tests not in self._seconds:
            began = time.monotonic()
            if (code := self._pytest(tests, BASELINE_LIMIT_S)) != PASSED:
                sys.exit(f"the tests fail without a mutant (exit code {code}): pytest {' '.join(tests)}")
            self._seconds[tests] = time.monotonic() - began
        return self._seconds[tests]

    def _pytest(self, tests: Iterable[str], limit_s: float, *, compiles: bool = False) -> int | None:
        """The exit code of pytest, or None when it took too long. `compiles`: the kernels are other ones."""
        options = ["-x", "-q", "--no-header", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
        options.append(f"--timeout={TEST_LIMIT_S}")
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            started = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, f"--basetemp={scratch}/pytest", *tests],
                cwd=self._root,
                env=self._environment(scratch, compiles=compiles),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                return started.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self._end(started)

    def _environment(self, scratch: str, *, compiles: bool) -> dict[str, str]:
        # Compiled kernels are cached by the time of one file, but contain code of several: a mutant that may change
        # them has its own cache.
        return os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self._source), str(self._root)]),
            "PYTHONDONTWRITEBYTECODE": "",  # pytest keeps its compiled tests
            "NUMBA_CACHE_DIR": f"{scratch if compiles else self._folder}/numba",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{scratch}/hypothesis",
        }

    @staticmethod
    def _end(started: "subprocess.Popen[bytes]") -> None:
        """Kill what the tests left running: a mutant may lose its own processes."""
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def all_mutants(root: Path = ROOT) -> list[Mutant]:
    """Every mutant of every module that is chosen, in the order of the paths."""
    source = root / "src"
    modules = sorted(PurePosixPath(file.relative_to(source)) for file in source.rglob("*.py"))
    return [
        Mutant(module, mutation)
        for module in modules
        if is_target(module)
        for mutation in mutations((source / module).read_text())
    ]


def equivalent_keys(text: str) -> dict[str, str]:
    """The mutants named in `equivalent.txt`, with the reasons."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, reason = line.rpartition("  # ")
        if not separator or not reason.strip():
            sys.exit(f"{EQUIVALENT.name}:{number} has no reason; end the line with two spaces, # and the reason")
        keys[key.strip()] = reason.strip()
    return keys


def run(chosen: list[Mutant], equivalent: Iterable[str], seed: int, *, quiet: bool) -> Report:
    """Test the mutants one after the other."""
    report, named = Report(seed), frozenset(equivalent)
    with tempfile.TemporaryDirectory(prefix="tidemill-mutants-") as folder:
        tree = MutantTree(Path(folder))
        for number, mutant in enumerate(chosen, 1):
            if mutant.key in named:
                report.equivalent += 1
                continue
            began = time.monotonic()
            killed, timed_out = tree.kills(mutant)
            report.killed += killed
            report.timed_out += timed_out
            if not killed:
                report.survivors.append(str(mutant))
            if not quiet:
                seconds = time.monotonic() - began
                print(f"{number}/{len(chosen)} killed {report.killed} ({seconds:.0f} s)", file=sys.stderr, flush=True)
                if not killed:
                    print(mutant, flush=True)
    return report


def main() -> None:
    """Sample, test, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=None, help="which sample; random when it is not given")
    parser.add_argument("--count", type=int, default=160, help="how many mutants")
    parser.add_argument("--only", default="", metavar="PREFIX", help="modules below src that begin so: tidemill/wire")
    parser.add_argument("--goal", type=float, default=95.0, help="percent that have to be killed")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    seed = Random().randrange(10**6) if given.seed is None else given.seed
    everything, equivalent = all_mutants(), equivalent_keys(EQUIVALENT.read_text())
    possible = [each for each in everything if str(each.module).startswith(given.only)]
    if not possible:
        sys.exit(f"no module below src begins with {given.only!r}")
    chosen = Random(seed).sample(possible, min(given.count, len(possible)))
    if not given.json:
        print(f"seed {seed}, {len(chosen)} of {len(possible)} mutants, machine: {describe()}", flush=True)
        for key in sorted(set(equivalent) - {each.key for each in everything}):
            print(f"{EQUIVALENT.name}: no such mutant any more: {key}")
    report = run(sorted(chosen, key=lambda each: str(each.module)), equivalent, seed, quiet=given.json)
    if given.json:
        print(json.dumps(asdict(report) | {"machine": describe(), "percent": report.percent}, indent=2))
    else:
        print(report.summary())
    sys.exit(report.percent < given.goal)


if __name__ == "__main__":
    main()
