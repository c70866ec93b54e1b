"""A process that has imported and collected the tests of a package, and runs some of them in a forked child.

The first line of standard input is a `Start`, each further line is a `Trial`. It writes an answer per line to standard
output: one that it is ready, then a result for each trial.
"""

import gc
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pytest
from tests.mutants import plugin
from tests.mutants.patch import Functions

PASSED, FAILED, TIMED_OUT, NOT_PATCHED, NOT_RUN = "passed", "failed", "timed out", "not patched", "not run"
READY = "ready"
EXIT_CODES = {0: PASSED, 1: FAILED, 2: NOT_PATCHED, -signal.SIGPROF: TIMED_OUT, -signal.SIGKILL: TIMED_OUT}
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Start:
    """What the process prepares: the test files of a package."""

    files: list[str]
    output: str
    compiled: str
    limits: dict[str, tuple[float, float]]

    def line(self) -> str:
        """It as one line of text."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True, slots=True)
class Trial:
    """Tests to run in this order until one fails. `file` has been changed from `original` in a function, if given."""

    tests: list[str]
    scratch: str
    limit_s: float
    file: str = ""
    original: str = ""
    scope: str = ""

    def line(self) -> str:
        """It as one line of text."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(slots=True)
class Server:
    """A pytest plugin that runs trials instead of the collected tests."""

    requests: TextIO
    answers: TextIO
    items: dict[str, pytest.Item] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        self.items = {item.nodeid: item for item in session.items}
        functions = Functions(Path.cwd() / "src")
        gc.collect()
        gc.freeze()
        self._answer(READY)
        for line in self.requests:
            self._answer(*_run(Trial(**json.loads(line)), self.items, functions))
        return True

    def _answer(self, *parts: str) -> None:
        self.answers.write("\t".join(parts) + "\n")


def _run(trial: Trial, items: dict[str, pytest.Item], functions: Functions) -> tuple[str, str]:
    failed = Path(trial.scratch) / "failed"
    if not (child := os.fork()):
        _test(trial, items, functions, failed)
    try:
        result = _wait(child, trial.limit_s)
    finally:
        with suppress(ProcessLookupError):  # what the tests left running: a mutant may lose its own processes
            os.killpg(child, signal.SIGKILL)
    return result, failed.read_text() if failed.exists() else ""


def _wait(child: int, limit_s: float) -> str:
    end = time.monotonic() + limit_s
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return TIMED_OUT
        time.sleep(POLL_S)
    return EXIT_CODES.get(os.waitstatus_to_exitcode(ended[1]), NOT_RUN)


def _test(trial: Trial, items: dict[str, pytest.Item], functions: Functions, failed: Path) -> NoReturn:
    os.setsid()
    try:
        code = _result(trial, items, functions, failed)
    except BaseException:  # noqa: BLE001  # the child must not go on as its parent
        code = 3
    os._exit(code)


def _result(trial: Trial, items: dict[str, pytest.Item], functions: Functions, failed: Path) -> int:
    if trial.file:
        file = Path(trial.file)
        if not functions.patch(file, Path(trial.original).read_text(), file.read_text(), trial.scope):
            return 2
    chosen = [items[name] for name in trial.tests]
    session: Any = chosen[0].session
    temporary = session.config._tmp_path_factory
    temporary._given_basetemp, temporary._basetemp = Path(trial.scratch) / "pytest", None
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            failed.write_text(item.nodeid)
            with suppress(Exception):  # so that no process of a fixture is left
                session._setupstate.teardown_exact(None)
            return 1
    return 0


def main() -> None:
    """Collect, then answer trials until standard input ends."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    start = Start(**json.loads(requests.readline()))
    os.environ["NUMBA_CACHE_DIR"] = start.compiled
    output = os.open(start.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    plugins: list[Any] = [plugin.Bounds(start.limits), Server(requests, answers)]
    pytest.main([*plugin.OPTIONS, *start.files], plugins)
    answers.close()
    sys.exit()


if __name__ == "__main__":
    main()
