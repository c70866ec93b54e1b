"""The pages about pipelines do what they say. Their commands run in this process, on the shared session."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.pages import SparkReader, lend
from tests.support.doc_pages import ROOT, SPARK_PAGES, blocks

from tidemill.testing import Broker


@pytest.mark.timeout(480)
@pytest.mark.parametrize("page", sorted(SPARK_PAGES))
def test_a_page_does_what_it_says(
    page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(spark, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with Broker() as broker:
        monkeypatch.setenv("TIDEMILL_BOOTSTRAP", broker.bootstrap_servers)
        reader = SparkReader(broker, tmp_path, capsys)
        for block in blocks(ROOT / page):
            if block.kind == "console":
                reader.follow(block)
