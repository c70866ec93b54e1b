"""Which tests call which functions of the mutated modules, recorded in one run of the unchanged source.

A mutant needs only the tests that call its function. A function that also runs while modules are imported may have
left its result in a table, so every test counts for it. What a fixture calls counts for all tests of its file,
because the fixture may be shared.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.mutants.mutations import MODULE


@dataclass(slots=True)
class Coverage:
    """The result of a recorded run. Functions are named by `function_key`, tests by their node ids."""

    callers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    imported: set[str] = field(default_factory=set)
    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    def tests_of(self, key: str) -> list[str] | None:
        """The tests that call a function, the fastest first. None: any test may depend on it."""
        if key in self.imported or not self.callers.get(key):
            return None
        return self.fastest_first(self.callers[key])

    def fastest_first(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.cpu_s[test], test))

    def tests_of_module(self, module: PurePosixPath) -> set[str]:
        """The tests that call any function of a module."""
        found = (tests for key, tests in self.callers.items() if key.startswith(f"{module}::"))
        return set().union(*found)

    def save(self, place: Path) -> None:
        callers = {key: sorted(tests) for key, tests in self.callers.items()}
        place.write_text(json.dumps([callers, sorted(self.imported), self.cpu_s, self.wall_s]))

    @classmethod
    def load(cls, place: Path) -> "Coverage":
        callers, imported, cpu_s, wall_s = json.loads(place.read_text())
        return cls({key: set(tests) for key, tests in callers.items()}, set(imported), cpu_s, wall_s)


def function_key(module: PurePosixPath, function: str) -> str:
    """The name of a function in `Coverage`, from the name that a mutation has."""
    return f"{module}::{function}"


class Recorder:
    """A pytest plugin that records a `Coverage` of the sources in a folder."""

    def __init__(self, source: Path) -> None:
        self._source = f"{source}/"
        self._seen: set[CodeType] = set()
        self._coverage = Coverage()
        self._tests_of_file: dict[str, set[str]] = defaultdict(set)
        self._fixture_calls: dict[str, set[str]] = defaultdict(set)
        self._start()

    def save(self, place: Path) -> None:
        for file, keys in self._fixture_calls.items():
            for key in keys:
                self._coverage.callers[key] |= self._tests_of_file[file]
        self._coverage.save(place)

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        self._coverage.imported |= self._called()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        cpu, wall = time.process_time(), time.monotonic()
        self._tests_of_file[_file(item)].add(item.nodeid)
        try:
            return (yield)
        finally:
            self._fixture_calls[_file(item)] |= self._called()
            self._coverage.cpu_s[item.nodeid] = time.process_time() - cpu
            self._coverage.wall_s[item.nodeid] = time.monotonic() - wall

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._fixture_calls[_file(item)] |= self._called()
        self._start()  # a test before it may have ended the trace
        try:
            return (yield)
        finally:
            for key in self._called():
                self._coverage.callers[key].add(item.nodeid)

    def _start(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> None:
        self._seen.add(frame.f_code)

    def _called(self) -> set[str]:
        """The functions that ran since the last question."""
        seen, self._seen = self._seen, set()
        return {self._key(code) for code in seen if code.co_filename.startswith(self._source)}

    def _key(self, code: CodeType) -> str:
        # A lambda or a comprehension belongs to the function around it.
        name = code.co_qualname.replace(".<locals>", "").partition("<")[0].rstrip(".")
        return function_key(PurePosixPath(code.co_filename.removeprefix(self._source)), name or MODULE)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
