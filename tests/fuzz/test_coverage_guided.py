"""Every fuzz target for a short time, from its corpus. `make fuzz` does the same for hours."""

import random
from pathlib import Path

import pytest
from tests.fuzz.run import CORPUS, executions, run
from tests.fuzz.targets import targets

pytest.importorskip("atheris", reason="atheris has no wheel for this Python")

SECONDS = 6


@pytest.mark.timeout(600)  # the imports of a child take long on a busy machine, before the seconds begin to count
@pytest.mark.parametrize("name", targets())
def test_no_input_breaks_the_target(name: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}")
    ran = run(name, SECONDS, seed, tmp_path)
    inputs = [each.read_bytes() for each in tmp_path.iterdir()]
    assert ran.returncode == 0, f"seed {seed}, inputs {inputs}:\n{ran.stderr[-3_000:]}"
    assert executions(ran) > 0, ran.stderr[-3_000:]
    print(f"{executions(ran)} inputs")


@pytest.mark.parametrize("name", targets())
def test_the_corpus_passes(name: str) -> None:
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        targets()[name](file.read_bytes())
