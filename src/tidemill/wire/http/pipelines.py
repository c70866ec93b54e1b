"""The documents of pipelines: what their processes report about themselves."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import Document, Input, PageQuery
from tidemill.wire.http.overview import MINUTES_MAX


class PipelineQuery(PageQuery, frozen=True, kw_only=True):
    """Which pipelines are listed. `state` selects pipelines; empty selects all."""

    sort: Literal["pipeline", "state", "queries", "rows", "lag", "reported"] = "pipeline"
    state: Literal["", "running", "starting", "failed", "stale", "stopped"] = ""


class PipelineRow(Document, frozen=True, kw_only=True):
    """One pipeline of a list. Numbers are sums over its queries, and times the latest or the largest."""

    pipeline: str
    state: str
    """running, starting, failed, stopped, or stale: its process has sent no report for a minute."""
    origin: str
    """What runs it, such as `tidemill pipeline run`."""
    host: str
    queries: int
    failed_queries: int
    rows_in_per_s: float
    lag: int | None
    """Records that its queries have not read; null while it is not known."""
    lag_s: float | None
    batch_s: float | None
    """The longest of the last micro-batches."""
    progress_ms: int | None
    """When Spark reported progress last."""
    reported_ms: int
    """When the last report came."""
    started_ms: int
    error: str


class PipelinePage(Document, frozen=True, kw_only=True):
    """A page of pipelines. `states` counts the pipelines of the search in each state."""

    pipelines: list[PipelineRow]
    total: int
    states: dict[str, int]


class PipelineDescriptionQuery(Input, frozen=True, kw_only=True):
    """How far the samples of a pipeline go back."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=MINUTES_MAX)] = 10


class BehindPartition(Document, frozen=True, kw_only=True):
    """A partition that a query has not read to its end."""

    partition: int
    lag: int


class PipelineSource(Document, frozen=True, kw_only=True):
    """A topic that a query reads."""

    topic: str
    partitions: int
    lag: int | None
    behind: list[BehindPartition]
    """The partitions with the largest lag."""


class PipelineSamples(Document, frozen=True, kw_only=True):
    """The last values of a query at the times of `times_ms`; null where the broker has none."""

    rows_in_per_s: list[float | None]
    lag: list[float | None]
    batch_s: list[float | None]
    state_bytes: list[float | None]


class PipelineQueryView(Document, frozen=True, kw_only=True):
    """One query of a pipeline. Counts begin with its process."""

    query: str
    state: str
    error: str
    group: str
    """The consumer group that shows its offsets; empty for none."""
    sink: str
    rows_in: int
    rows_out: int | None
    rows_in_per_s: float
    rows_processed_per_s: float
    batch: int
    """The id of the last micro-batch; -1 before the first."""
    batches: int
    batch_s: float | None
    lag: int | None
    lag_s: float | None
    state_rows: int | None
    state_bytes: int | None
    watermark_ms: int | None
    progress_ms: int | None
    broken: dict[str, int]
    """Rows that violate an expectation, by its name."""
    sources: list[PipelineSource]
    samples: PipelineSamples


class PipelineDataset(Document, frozen=True, kw_only=True):
    """One dataset of the graph. `reads` are the places in the list of those that it is made from."""

    kind: str
    """topic, timeline, transformation, query, lake, table, console or other."""
    name: str
    detail: str
    reads: list[int]


class PipelineDescription(Document, frozen=True, kw_only=True):
    """One pipeline: its process, its queries, and the graph of its datasets."""

    pipeline: str
    state: str
    error: str
    origin: str
    run: str
    host: str
    sent_by: str
    """The user that sent the last report."""
    sent_from: str
    """The address that it was sent from."""
    started_ms: int
    reported_ms: int
    reads: list[str]
    writes: list[str]
    """Topics and timelines."""
    queries: list[PipelineQueryView]
    datasets: list[PipelineDataset]
    times_ms: list[int]
    """The times of the samples."""


class PipelinesAsked(Document, frozen=True, kw_only=True):
    """What a broker asks the leader of the reports for: one page."""

    search: str
    state: str
    sort: str
    descending: bool
    page: int
    rows: int


class PipelinesPart(Document, frozen=True, kw_only=True):
    """A page of the reports; null while the broker still reads them."""

    page: PipelinePage | None


class PipelineAsked(Document, frozen=True, kw_only=True):
    """What a broker asks the leader of the reports for: one pipeline."""

    pipeline: str
    slots: int


class PipelinePart(Document, frozen=True, kw_only=True):
    """One pipeline; null for one that the client may not see, or that is not known."""

    is_loading: bool
    pipeline: PipelineDescription | None
