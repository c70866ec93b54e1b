"""Writes a report as tables on disk, each as Parquet and as CSV."""

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tidemill.pipelines.run.core.report import TrafficReport

TRAFFIC = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("at", pa.timestamp("ms", "UTC")),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
LAG = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("end", pa.int64()),
        ("lag", pa.int64()),
        ("lag_s", pa.float64()),
    ]
)


def write_tables(report: TrafficReport, folder: Path) -> list[Path]:
    """Write `traffic` (by topic, partition and step) and `lag` (by group and partition); return the paths."""
    lags = [{**asdict(each), "lag": each.lag} for each in report.lags]
    tables = {
        "traffic": pa.Table.from_pylist([dict(row) for row in report.traffic], TRAFFIC),
        "lag": pa.Table.from_pylist(lags, LAG),
    }
    written: list[Path] = []
    for name, table in tables.items():
        written += [folder / f"{name}.parquet", folder / f"{name}.csv"]
        pq.write_table(table, written[-2])
        pyarrow.csv.write_csv(table, written[-1])
    return written
