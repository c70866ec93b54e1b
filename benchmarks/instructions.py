"""Counts the instructions of a process, which other load on the machine does not change."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import IO

COLLECTED = re.compile(r"Collected : (\d+)")
Use = Callable[[IO[str]], None]


def instructions(module: str, *words: str, source: str | None = None, use: Use | None = None) -> int:
    """The instructions of `python -m MODULE WORDS` under valgrind, with another source tree if one is given.

    `use` reads the output of the process while it runs.
    """
    path = {"PYTHONPATH": source} if source else {}
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    process = subprocess.Popen(
        [*tool, sys.executable, "-m", module, *words],
        env={**os.environ, **path, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if use is not None and process.stdout is not None:
        use(process.stdout)
    _, errors = process.communicate()
    found = COLLECTED.search(errors)
    assert process.returncode == 0, errors
    assert found is not None, errors
    return int(found[1])
