"""The tables of a report."""

import csv
from pathlib import Path

import pyarrow.parquet as pq
from tests.unit.pipelines.run.sample_report import REPORT

from tidemill.pipelines.run.report_files import write_tables


def test_tables_are_written_twice_and_read_back(tmp_path: Path) -> None:
    assert [path.name for path in write_tables(REPORT, tmp_path)] == [
        "traffic.parquet",
        "traffic.csv",
        "lag.parquet",
        "lag.csv",
    ]
    assert sum(pq.read_table(tmp_path / "traffic.parquet")["records"].to_pylist()) == 420
    with (tmp_path / "lag.csv").open() as file:
        assert [row["lag"] for row in csv.DictReader(file)] == ["30", "2", "0"]
