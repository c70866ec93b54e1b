"""The examples are programs that end well."""

from pathlib import Path

import pytest
from tests.integration.pages import ROOT, Block, names
from tests.integration.reader import Reader

from tidemill.testing import Broker

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_an_example_ends_well(example: Path, tmp_path: Path) -> None:
    with Broker() as broker:
        Reader(broker, tmp_path).follow(Block("python", example.read_text(encoding="utf-8")))
