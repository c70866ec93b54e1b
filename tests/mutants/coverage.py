"""Which tests reach which statements of the mutated modules, recorded in one run of the unchanged source.

A mutant needs only the tests that reach its statement. A function that also runs while modules are imported may have
left its result in a table, so it is mutated before the import, and all tests that reach its module count. What a
fixture reaches counts for all tests of its file, because the fixture may be shared.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest
from tests.mutants.marks import Marks, statement_key
from tests.mutants.mutations import Mutation

FAST_CPU_S = 0.05
"""Faster tests are sorted by time alone. Slower ones are kept together by file, so that they share its fixtures."""


@dataclass(slots=True)
class Coverage:
    """The result of a recorded run. Statements are named by `statement_key`, tests by their node ids."""

    reached: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    imported: set[str] = field(default_factory=set)
    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    def tests_of(self, module: PurePosixPath, mutation: Mutation) -> set[str]:
        """The tests that reach the statement of a mutation, or its scope if it has none."""
        if mutation.position:
            return self.reached.get(statement_key(module, mutation.scope, mutation.position), set())
        return self._below(f"{module}::{mutation.scope}:") if mutation.scope else self.tests_of_module(module)

    def tests_of_module(self, module: PurePosixPath) -> set[str]:
        """The tests that reach any function of a module."""
        return self._below(f"{module}::")

    def is_imported(self, module: PurePosixPath, scope: str) -> bool:
        """Whether a function runs while modules are imported."""
        return any(key.startswith(f"{module}::{scope}:") for key in self.imported)

    def in_order(self, tests: set[str], own_files: set[str]) -> list[str]:
        """The fastest tests first, and those of a module's own files before others that take as long."""

        def rank(test: str) -> tuple[float, str]:
            return self.cpu_s[test] * (1 if file_of(test) in own_files else 4), test

        fast = sorted((test for test in tests if self.cpu_s[test] < FAST_CPU_S), key=rank)
        return [*fast, *by_file(sorted(tests.difference(fast), key=rank))]

    def leave_out(self, test: str) -> None:
        """Forget a test."""
        del self.cpu_s[test], self.wall_s[test]
        for tests in self.reached.values():
            tests.discard(test)

    def _below(self, prefix: str) -> set[str]:
        found = (tests for key, tests in self.reached.items() if key.startswith(prefix))
        return set().union(*found)

    def save(self, place: Path) -> None:
        """Write it to a file."""
        tests = list(self.cpu_s)
        numbers = {test: number for number, test in enumerate(tests)}
        reached = {key: sorted(numbers[test] for test in found) for key, found in self.reached.items()}
        times = [[self.cpu_s[test], self.wall_s[test]] for test in tests]
        place.write_text(json.dumps([tests, times, reached, sorted(self.imported)]))

    @classmethod
    def load(cls, place: Path) -> "Coverage":
        """Read it from a file."""
        tests, times, reached, imported = json.loads(place.read_text())
        return cls(
            {key: {tests[number] for number in numbers} for key, numbers in reached.items()},
            set(imported),
            {test: cpu_s for test, (cpu_s, _) in zip(tests, times, strict=True)},
            {test: wall_s for test, (_, wall_s) in zip(tests, times, strict=True)},
        )


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def stages_of(everything: set[str], own: set[str], near: set[str], *, is_complete: bool) -> list[set[str]]:
    """The tests in the order in which they are likely to find a mutant: those of the module's own files that reach it,
    the others that reach it, and the rest, unless those that reach it are all that can find it."""
    first = near & own or own
    rest = set() if is_complete else everything - near - first
    return [stage for stage in (first, near - first, rest) if stage]


def by_file(tests: Iterable[str]) -> list[str]:
    """The tests of a file one after the other. The file of the first test is first."""
    places: dict[str, int] = {}
    tests = list(tests)
    for test in tests:
        places.setdefault(file_of(test), len(places))
    return sorted(tests, key=lambda test: places[file_of(test)])


class Recorder:
    """A pytest plugin that records a `Coverage`."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._coverage = Coverage()
        self._tests_of_file: dict[str, set[str]] = defaultdict(set)
        self._fixtures: dict[str, set[str]] = defaultdict(set)

    def save(self, place: Path) -> None:
        """Write the coverage to a file."""
        for file, keys in self._fixtures.items():
            for key in keys:
                self._coverage.reached[key] |= self._tests_of_file[file]
        self._coverage.save(place)

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        self._coverage.imported |= self._marks.seen()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        cpu, wall = time.process_time(), time.monotonic()
        file = file_of(item.nodeid)
        self._tests_of_file[file].add(item.nodeid)
        try:
            return (yield)
        finally:
            self._fixtures[file] |= self._marks.seen()
            self._coverage.cpu_s[item.nodeid] = time.process_time() - cpu
            self._coverage.wall_s[item.nodeid] = time.monotonic() - wall

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._fixtures[file_of(item.nodeid)] |= self._marks.seen()
        try:
            return (yield)
        finally:
            for key in self._marks.seen():
                self._coverage.reached[key].add(item.nodeid)
