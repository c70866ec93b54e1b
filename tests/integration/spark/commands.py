"""Whole `tidemill pipeline` commands, and the small pipelines that they run in tests."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.folder import SPEC

END_S = 150


def order(number: int) -> dict[str, Any]:
    return {"item": f"item {number % 3}", "price": 1.5, "quantity": number}


def make_pipeline(root: Path, servers: str, source: str, sink: str) -> None:
    """Make the example pipeline, with topics of its own."""
    write_example(root, servers)
    spec = (root / SPEC).read_text().replace("topic: orders", f"topic: {source}")
    (root / SPEC).write_text(spec.replace("topic: revenue", f"topic: {sink}"))


def only_rows(root: Path) -> None:
    """Make a pipeline that a graph supports: rows go to a topic unchanged."""
    text = (root / SPEC).read_text()
    begin, end = text.index("sinks:"), text.index("schedule:")
    target = text[begin:end].split("topic: ", 1)[1].split()[0]
    sinks = f"sinks:\n  rows:\n    from: priced\n    topic: {target}\n    key: item\n\n"
    (root / SPEC).write_text(text[:begin] + sinks + text[end:])


def run_all(commands: list[list[str]], servers: str, within_s: int = END_S, **environment: str) -> list[str]:
    """Run commands in parallel and return their output. All must succeed."""
    given = os.environ | {"TIDEMILL_BOOTSTRAP": servers, **environment}
    with ExitStack() as started:
        runs = []
        for words in commands:
            command = [sys.executable, "-m", "tidemill", "pipeline", *words]
            run = subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            runs.append(run)
            started.callback(run.wait)
            started.callback(run.kill)
        said = [run.communicate(timeout=within_s)[0] for run in runs]
        assert [run.returncode for run in runs] == [0] * len(runs), said
    return said
