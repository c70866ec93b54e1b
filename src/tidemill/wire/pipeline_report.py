"""The report of a running pipeline: what its process sends to the broker, as the JSON value of one record.

Reports are input of clients, so every length, count and number is bounded. The reader checks the types; what concerns
several fields is checked by `pipeline_reports/core/report_reading.py`.
"""

from typing import Annotated, Literal

import msgspec

REPORT_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 200
TOPIC_CHARS_MAX = 249
ERROR_CHARS_MAX = 4_000
QUERIES_MAX = 50
SOURCES_MAX = 50
BEHIND_MAX = 20
"""The partitions of a source that are named: those with the largest lag."""
NODES_MAX = 200
NODE_READS_MAX = 50
TOPICS_MAX = 100
BROKEN_MAX = 50
COUNT_MAX = 2**53
AMOUNT_MAX = 1e15
TIME_MS_MAX = 253_402_300_799_000
"""The end of the year 9999."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Label = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
ErrorText = Annotated[str, msgspec.Meta(max_length=ERROR_CHARS_MAX)]
ReportedTopic = Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_CHARS_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=TIME_MS_MAX)]
RunState = Literal["starting", "running", "stopped", "failed"]
DatasetKind = Literal["topic", "timeline", "transformation", "query", "lake", "table", "console", "other"]


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of a report and its parts. Fields that a later version adds are ignored."""


class PartitionBehind(ReportPart, frozen=True, kw_only=True):
    """A partition that a query has not read to its end."""

    partition: Count
    lag: Count


class SourceProgress(ReportPart, frozen=True, kw_only=True):
    """What a query has read of one topic. Lag is null until it is known."""

    topic: ReportedTopic
    partitions: Count = 0
    lag: Count | None = None
    behind: Annotated[list[PartitionBehind], msgspec.Meta(max_length=BEHIND_MAX)] = []
    """The partitions with the largest lag."""


class QueryReport(ReportPart, frozen=True, kw_only=True):
    """One query of Spark. Counts begin with its process."""

    query: Name
    state: RunState = "running"
    error: ErrorText = ""
    group: Label = ""
    """The consumer group that shows its offsets; empty for none."""
    sink: Label = ""
    rows_in: Count = 0
    rows_out: Count | None = None
    """Null where the sink does not count."""
    rows_in_per_s: Amount = 0.0
    rows_processed_per_s: Amount = 0.0
    batch: Annotated[int, msgspec.Meta(ge=-1, le=COUNT_MAX)] = -1
    """The id of the last micro-batch; -1 before the first."""
    batches: Count = 0
    """Micro-batches with rows."""
    batch_s: Amount | None = None
    """The duration of the last micro-batch with rows."""
    batches_s: Amount = 0.0
    """The sum of the durations."""
    lag: Count | None = None
    lag_s: Amount | None = None
    state_rows: Count | None = None
    """Null for a query without state."""
    state_bytes: Count | None = None
    watermark_ms: TimeMs | None = None
    progress_ms: TimeMs | None = None
    """When Spark reported progress last."""
    broken: Annotated[dict[Label, Count], msgspec.Meta(max_length=BROKEN_MAX)] = {}
    """Rows that violate an expectation, by its name."""
    sources: Annotated[list[SourceProgress], msgspec.Meta(max_length=SOURCES_MAX)] = []


class DatasetNode(ReportPart, frozen=True, kw_only=True):
    """One dataset of the graph. `reads` are the places of datasets before it in the list."""

    kind: DatasetKind
    name: Label
    detail: Label = ""
    reads: Annotated[list[Count], msgspec.Meta(max_length=NODE_READS_MAX)] = []


class PipelineReport(ReportPart, frozen=True, kw_only=True):
    """One process that runs a pipeline, with its queries and the graph of its datasets."""

    pipeline: Name
    origin: Label = ""
    """What runs it, such as `tidemill pipeline run`."""
    run: Label = ""
    """An id of the process, drawn when it starts."""
    host: Label = ""
    state: RunState
    error: ErrorText = ""
    started_ms: TimeMs
    reads: Annotated[list[ReportedTopic], msgspec.Meta(max_length=TOPICS_MAX)] = []
    writes: Annotated[list[ReportedTopic], msgspec.Meta(max_length=TOPICS_MAX)] = []
    """Topics and timelines."""
    queries: Annotated[list[QueryReport], msgspec.Meta(max_length=QUERIES_MAX)] = []
    datasets: Annotated[list[DatasetNode], msgspec.Meta(max_length=NODES_MAX)] = []


class StoredReport(ReportPart, frozen=True, kw_only=True):
    """A report as the broker stores it: with the user that sent it, and when it came."""

    report: PipelineReport
    sent_by: str
    host: str
    received_ms: int


def encode_report(report: PipelineReport | StoredReport) -> bytes:
    """A report as the value of a record."""
    return msgspec.json.encode(report)
