"""A process that runs pytest in forked children, so that libraries are imported once and not for each mutant.

It reads a request per line from standard input and writes an answer per line to standard output. It never imports
the mutated package itself: each child imports it from the source as it is then.
"""

import gc
import importlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.mutants import plugin
from tests.mutants.coverage import Recorder
from tests.mutants.marks import Marks
from tests.mutants.targets import is_marked

TIME_LIMIT_CODE = -1
"""The exit code of tests that took too long."""
POLL_S = 0.01
COMPILERS = ("numba", "llvmlite")
"""They read the folder of their cache when they are imported, and a mutant may have its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run of pytest. Without `chosen` all tests of the files run, and `record` is the file for their coverage."""

    files: list[str]
    scratch: str
    output: str
    compiled: str
    limit_s: float
    chosen: list[str] = field(default_factory=list)
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    record: str = ""
    preload: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The request as one line of text."""
        return json.dumps(asdict(self)) + "\n"


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        request = Request(**json.loads(line))
        _preload(request.preload)
        answers.write(f"{_run(request)}\n")


def _preload(names: list[str]) -> None:
    for name in names:
        with suppress(Exception):  # then the child imports it, and reports the error
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _run(request: Request) -> int:
    if not (child := os.fork()):
        _test(request)
    try:
        return _wait(child, request.limit_s)
    finally:
        with suppress(ProcessLookupError):  # what the tests left running: a mutant may lose its own processes
            os.killpg(child, signal.SIGKILL)


def _wait(child: int, limit_s: float) -> int:
    """The exit code of a child. A child that exceeds the limit is killed."""
    end = time.monotonic() + limit_s
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return TIME_LIMIT_CODE
        time.sleep(POLL_S)
    code = os.waitstatus_to_exitcode(ended[1])
    return TIME_LIMIT_CODE if code == -signal.SIGPROF else code


def _test(request: Request) -> NoReturn:
    os.setsid()
    os.environ["NUMBA_CACHE_DIR"] = request.compiled
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(request.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    plugins: list[Any] = [plugin.Bounds(request.limits), plugin.Choice(request.chosen)]
    recorder = Recorder(Marks(Path.cwd() / "src", is_marked)) if request.record else None
    plugins += [recorder] if recorder else []
    code = int(pytest.main([*plugin.OPTIONS, f"--basetemp={request.scratch}/pytest", *request.files], plugins))
    if recorder:
        place = Path(request.record)
        recorder.save(place)
        place.with_suffix(".modules").write_text(json.dumps(_libraries()))
    os._exit(code)


def _libraries() -> list[str]:
    """The imported modules from outside of the work tree, in the order of their imports, which some depend on."""
    root = f"{Path.cwd()}/"
    return [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in {*COMPILERS, "__main__"}
        and (file := getattr(module, "__file__", None))
        and not file.startswith(root)
    ]


if __name__ == "__main__":
    main()
