"""Audits: missing, duplicated and unknown rows are found."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.pipelines.lake.sample_orders import add, rows

from tidemill.pipelines.lake.audit import audit, verdict_text
from tidemill.pipelines.lake.core.contents import OffsetRun
from tidemill.pipelines.lake.parquet import ParquetLake


def test_an_audit_finds_what_is_missing_doubled_or_not_of_a_commit(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    add(lake, 0, rows(0, range(5)), rows(1, range(5)))
    add(lake, 1, rows(0, range(7, 9)), rows(1, range(4, 6)))
    pq.write_table(pa.table({"offset": [1]}), lake.root / "odd.parquet")
    found = audit(lake)
    first, second = found.verdicts
    assert (first.missing, first.holes, first.doubled) == (2, (OffsetRun(5, 7),), 0)
    assert (second.missing, second.doubled) == (0, 1)
    assert found.strays == ("odd.parquet",)
    assert [
        verdict_text(first, None),
        verdict_text(first, {0: 0}),
        verdict_text(first, {0: 1}),
        verdict_text(second, None),
    ] == [
        "holes",
        "complete",
        "lost",
        "doubled",
    ]
