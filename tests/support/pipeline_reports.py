"""Reports of pipelines for tests, and how they are sent to a broker."""

from typing import Any

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import UnknownTopicOrPartition
from tidemill.model.topics import PIPELINES, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.wire.pipeline_report import (
    DatasetNode,
    PartitionBehind,
    PipelineReport,
    QueryReport,
    SourceProgress,
    encode_report,
)

START_MS = 1_790_000_000_000
"""In 2026."""


def query_report(name: str = "revenue", topic: str = "orders", **fields: Any) -> QueryReport:
    """A query that is 7 records behind."""
    known: dict[str, Any] = {
        "group": f"shop-{name}",
        "sink": "topic revenue",
        "rows_in": 1_000,
        "rows_out": 40,
        "rows_in_per_s": 250.0,
        "rows_processed_per_s": 900.0,
        "batch": 12,
        "batches": 11,
        "batch_s": 0.8,
        "batches_s": 9.5,
        "lag": 7,
        "lag_s": 1.5,
        "state_rows": 3,
        "state_bytes": 4_096,
        "watermark_ms": START_MS,
        "progress_ms": START_MS + 60_000,
        "sources": [
            SourceProgress(topic=topic, partitions=2, lag=7, behind=[PartitionBehind(partition=1, lag=7)]),
        ],
    }
    return QueryReport(query=name, **{**known, **fields})


def pipeline_report(name: str = "shop", topic: str = "orders", **fields: Any) -> PipelineReport:
    """A pipeline with one query, from a topic to the topic `revenue`."""
    known: dict[str, Any] = {
        "origin": "tidemill pipeline run",
        "run": "r1",
        "host": "worker-1",
        "state": "running",
        "started_ms": START_MS,
        "reads": [topic],
        "writes": ["revenue"],
        "queries": [query_report(topic=topic)],
        "datasets": [
            DatasetNode(kind="topic", name=topic, detail="json"),
            DatasetNode(kind="transformation", name="totals", detail="transformations/totals.sql", reads=[0]),
            DatasetNode(kind="topic", name="revenue", detail="update", reads=[1]),
        ],
    }
    return PipelineReport(pipeline=name, **{**known, **fields})


def send_report(client: KafkaClient, report: PipelineReport) -> None:
    """Send a report as a pipeline does."""
    send_record(client, report.pipeline.encode(), encode_report(report))


def has_sent(client: KafkaClient, report: PipelineReport) -> bool:
    """Send a report; False while the brokers of a cluster still create the topic."""
    try:
        send_report(client, report)
    except UnknownTopicOrPartition:
        return False
    return True


def send_record(client: KafkaClient, key: bytes | None, value: bytes | None) -> None:
    """Send any record to the topic of the reports."""
    client.metadata([PIPELINES], create=True)
    client.produce(TopicPartition(PIPELINES, 0), build_batch([NewRecord(key, value, timestamp=START_MS)]))
