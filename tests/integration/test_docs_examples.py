"""The examples are programs that end well."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.doc_pages import ROOT, Block, names
from tests.support.doc_reader import Reader

from tidemill.testing import Broker

SHELL_S = 120
# What needs Spark is run by the Spark tests, in their session.
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("spark_"))


@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_an_example_ends_well(example: Path, tmp_path: Path) -> None:
    with Broker() as broker:
        Reader(broker, tmp_path).follow(Block("python", example.read_text(encoding="utf-8")))


def test_the_example_for_the_shell_ends_well() -> None:
    with Broker() as broker:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["sh", str(ROOT / "examples" / "parallel_exec.sh")],
            env=os.environ | {"PATH": programs, "TIDEMILL_BOOTSTRAP": broker.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=SHELL_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("was at offset") == 39
    assert ran.stdout.splitlines()[-1] == "dead letter: order 13"
    assert "40 records handled, 1 tried again, 1 dead letters" in ran.stderr
