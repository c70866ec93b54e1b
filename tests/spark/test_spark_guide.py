"""The guide to Spark does what it says: its programs run one after the other, on the session that is there."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.pages import ROOT, blocks, same
from tests.integration.reader import Reader

from tidemill.testing import Broker

GUIDE = ROOT / "docs" / "guides" / "spark.md"

pytestmark = pytest.mark.timeout(180)


def test_the_guide(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed: list[str] = []
    shown = 0
    with Broker() as broker:
        reader = Reader(broker, tmp_path)
        for block in blocks(GUIDE):
            if block.kind == "console":
                reader.follow(block)
            elif block.kind == "py":
                assert printed == [], f"the guide does not show {printed}"
                capsys.readouterr()
                text = block.text.replace("127.0.0.1:9092", broker.bootstrap_servers)
                # Spark's JVM keeps the folder in which it was started.
                text = text.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
                exec(compile(text, str(GUIDE), "exec"), names)
                printed = [line for line in capsys.readouterr().out.splitlines() if line]
            elif block.kind == "text":
                expected = block.text.splitlines()
                assert len(expected) == len(printed), printed
                assert all(same(line, found) for line, found in zip(expected, printed, strict=True)), printed
                printed, shown = [], shown + 1
        assert shown >= 4
