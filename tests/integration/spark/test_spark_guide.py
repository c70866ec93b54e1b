"""The programs of the Spark guide run one after the other, on the session of the tests."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.pages import SparkReader, lend
from tests.support.doc_pages import ROOT, Block, blocks, same

from tidemill.testing import Broker

GUIDE = ROOT / "docs" / "guides" / "spark.md"

pytestmark = pytest.mark.timeout(180)


class Follower:
    """Runs the programs of a page one after the other and compares what they print."""

    def __init__(self, reader: SparkReader, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._reader = reader
        self._servers = servers
        self._capsys = capsys
        self._names: dict[str, Any] = {}
        self._printed: list[str] = []
        self.shown = 0

    def follow(self, block: Block, folder: Path) -> None:
        if block.kind == "console":
            self._reader.follow(block)
        elif block.kind == "py":
            assert self._printed == [], f"the page does not show {self._printed}"
            text = block.text.replace("127.0.0.1:9092", self._servers)
            # Spark's JVM keeps the folder in which it was started.
            text = text.replace('"checkpoints/', f'"{folder}/checkpoints/')
            self._capsys.readouterr()
            exec(compile(text, "page", "exec"), self._names)  # noqa: S102 -- the pages of this repository
            self._printed = [line for line in self._capsys.readouterr().out.splitlines() if line]
        elif block.kind == "text":
            expected = block.text.splitlines()
            assert len(expected) == len(self._printed), self._printed
            pairs = zip(expected, self._printed, strict=True)
            assert all(same(line, found) for line, found in pairs), self._printed
            self._printed, self.shown = [], self.shown + 1


def test_the_guide_does_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with Broker() as broker:
        monkeypatch.setenv("TIDEMILL_BOOTSTRAP", broker.bootstrap_servers)
        follower = Follower(SparkReader(broker, tmp_path, capsys), broker.bootstrap_servers, capsys)
        for block in blocks(GUIDE):
            follower.follow(block, tmp_path)
    assert follower.shown >= 4
