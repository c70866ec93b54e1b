"""What the broker is shown of a query, from Spark's reports."""

from typing import Any

import pytest
from tests.unit.pipelines.run.scripted_queries import report

from tidemill.pipelines.run.core.progress import SinkProgress
from tidemill.pipelines.run.core.query_measurements import QueryFacts, QueryMeasurements, name_text
from tidemill.wire.pipeline_report import NAME_CHARS_MAX, PartitionBehind, SourceProgress

FACTS = QueryFacts("shop-revenue", "topic revenue")
SOURCES = [
    {
        "endOffset": {"orders": {"0": 5, "1": 7}, "$ids": {}},
        "latestOffset": {"orders": {"0": 5, "1": 17}, "$ids": {}},
    },
    {"endOffset": '{"prices": {"0": 3}}', "latestOffset": '{"prices": {"0": 4}}'},
]


def full(**more: Any) -> dict[str, Any]:
    return {
        **report(100, 5, 5),
        "batchId": 4,
        "inputRowsPerSecond": 20.04,
        "durationMs": {"triggerExecution": 1_500},
        "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 50}],
        "eventTime": {"watermark": "2026-11-16T17:59:00.000Z"},
        "sources": SOURCES,
        "sink": {"description": "ForeachBatchSink", "numOutputRows": 10},
        **more,
    }


def after(*reports: dict[str, Any]) -> QueryMeasurements:
    return QueryMeasurements(SinkProgress("revenue")).after(reports, 1_000)


def test_a_query_is_measured() -> None:
    found = after(full(), full(batchId=5)).report(FACTS, "running")
    assert (found.query, found.state) == ("revenue", "running")
    assert (found.group, found.sink) == FACTS
    assert (found.rows_in, found.rows_out, found.batches, found.batch) == (200, 20, 2, 5)
    assert (found.rows_in_per_s, found.rows_processed_per_s) == (20.0, 200.0)
    assert (found.batch_s, found.batches_s) == (1.5, 3.0)
    assert (found.state_rows, found.state_bytes) == (7, 150)
    assert found.watermark_ms == 1_794_851_940_000
    assert found.progress_ms == 1_794_852_000_000
    assert found.lag == 11
    assert found.sources == [
        SourceProgress(topic="orders", partitions=2, lag=10, behind=[PartitionBehind(partition=1, lag=10)]),
        SourceProgress(topic="prices", partitions=1, lag=1, behind=[PartitionBehind(partition=0, lag=1)]),
    ]


def test_a_micro_batch_without_rows_keeps_the_last_values() -> None:
    idle = full(numInputRows=0, durationMs={"triggerExecution": 3}, stateOperators=[], eventTime={}, sources=[])
    found = after(full(), idle).report(FACTS, "running")
    assert (found.rows_in_per_s, found.batch_s, found.batches_s, found.batches) == (0.0, 1.5, 1.5, 1)
    assert found.state_rows == 7
    assert found.watermark_ms == 1_794_851_940_000
    assert [source.topic for source in found.sources] == ["orders", "prices"]


@pytest.mark.parametrize(
    "more",
    [
        {"sink": {"description": "noop", "numOutputRows": -1}},
        {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}},
        {"inputRowsPerSecond": float("inf"), "processedRowsPerSecond": 0.0},
        {"inputRowsPerSecond": float("nan")},
        {"durationMs": None, "stateOperators": None, "sink": None, "eventTime": None, "sources": None},
        {"eventTime": {"watermark": "soon"}, "timestamp": "2026-11-16T18:00:00.000Z"},
    ],
)
def test_missing_and_endless_values_become_no_values(more: dict[str, Any]) -> None:
    found = after(full(**more)).report(FACTS, "running")
    assert found.rows_in == 100
    if "inputRowsPerSecond" in more:
        assert found.rows_in_per_s == 0.0
    if "sink" in more:
        assert found.rows_out is None
    if "eventTime" in more:
        assert found.watermark_ms is None


def test_the_description_of_spark_is_used_where_the_sink_is_not_known() -> None:
    assert after(full()).report(QueryFacts(), "running").sink == "ForeachBatchSink"


def test_an_idle_query_reads_no_rows() -> None:
    found = after(full(), {"timestamp": "2026-11-16T18:00:10.000Z", "numInputRows": 0}).report(FACTS, "running")
    assert (found.rows_in, found.rows_in_per_s, found.batch) == (100, 0.0, 4)
    assert found.progress_ms == 1_794_852_010_000


@pytest.mark.parametrize(
    ("described", "shown"),
    [
        ("org.apache.spark.sql.execution.streaming.ConsoleTable$@66b6fdc", "ConsoleTable"),
        ("NoopTable", "NoopTable"),
        ("FileSink[file:/tmp/a.b/lake]", "FileSink[file:/tmp/a.b/lake]"),
    ],
)
def test_names_of_java_objects_become_words(described: str, shown: str) -> None:
    found = after(full(sink={"description": described, "numOutputRows": -1}))
    assert found.report(QueryFacts(), "running").sink == shown


def test_names_are_made_acceptable() -> None:
    assert name_text("täglich") == "täglich"
    assert name_text("a\nb\u202e") == "a?b?"
    assert name_text("") == "unnamed"
    assert len(name_text("x" * 1_000)) == NAME_CHARS_MAX
