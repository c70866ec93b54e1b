"""The parts of views of pipelines: what the broker that leads their reports knows."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.broker.history import SAMPLE_MS, SLOTS
from tidemill.broker.pipeline_metrics import BATCH, LAG, ROWS, SERIES, STATE, history_key
from tidemill.pipeline_reports.core.pipeline_state import ALIVE, query_state_of, state_of
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.group_parts import describes_topics
from tidemill.servers.http.api.paging import rows_of
from tidemill.wire.http.pipelines import (
    BehindPartition,
    PipelineAsked,
    PipelineDataset,
    PipelineDescription,
    PipelinePage,
    PipelinePart,
    PipelineQuery,
    PipelineQueryView,
    PipelineRow,
    PipelineSamples,
    PipelinesAsked,
    PipelineSource,
    PipelinesPart,
)
from tidemill.wire.pipeline_report import QueryReport, SourceProgress, StoredReport

SLOTS_A_MINUTE = 60_000 // SAMPLE_MS
UNKNOWN = -1.0
"""Sorts before every known value."""


def sees_pipelines(rights: ClientRights) -> Callable[[StoredReport], bool]:
    """A function that says which pipelines a client may see."""
    sees_all = rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    describes = describes_topics(rights)

    def sees(stored: StoredReport) -> bool:
        return sees_all or all(map(describes, (*stored.report.reads, *stored.report.writes)))

    return sees


async def _page_here(broker: BrokerNode, rights: ClientRights, asked: PipelinesAsked) -> PipelinesPart:
    if not broker.pipeline_reports.has_loaded():
        return PipelinesPart(page=None)
    now_ms, sees = broker.clock_ms(), sees_pipelines(rights)
    found = [each for each in broker.pipeline_reports.all() if asked.search in each.report.pipeline and sees(each)]
    states = Counter(state_of(each, now_ms) for each in found)
    chosen = [_row(each, now_ms) for each in found if asked.state in ("", state_of(each, now_ms))]
    query = PipelineQuery(descending=asked.descending, page=asked.page, rows=asked.rows)
    rows = rows_of(chosen, query, _sort_key(asked.sort))
    return PipelinesPart(page=PipelinePage(pipelines=rows, total=len(chosen), states=dict(sorted(states.items()))))


async def _one_here(broker: BrokerNode, rights: ClientRights, asked: PipelineAsked) -> PipelinePart:
    reports = broker.pipeline_reports
    stored = reports.get(asked.pipeline)
    is_visible = stored is not None and sees_pipelines(rights)(stored)
    return PipelinePart(
        is_loading=not reports.has_loaded(),
        pipeline=_described(broker, stored, min(asked.slots, SLOTS)) if stored is not None and is_visible else None,
    )


def _row(stored: StoredReport, now_ms: int) -> PipelineRow:
    report = stored.report
    queries, state = report.queries, state_of(stored, now_ms)
    return PipelineRow(
        pipeline=report.pipeline,
        state=state,
        origin=report.origin,
        host=report.host,
        queries=len(queries),
        failed_queries=sum(each.state == "failed" for each in queries),
        rows_in_per_s=round(sum(each.rows_in_per_s for each in queries), 1) if state in ALIVE else 0.0,
        lag=_sum(each.lag for each in queries),
        lag_s=_largest(each.lag_s for each in queries),
        batch_s=_largest(each.batch_s for each in queries),
        progress_ms=max((each.progress_ms for each in queries if each.progress_ms is not None), default=None),
        reported_ms=stored.received_ms,
        started_ms=report.started_ms,
        error=report.error,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _sort_key(column: str) -> Callable[[PipelineRow], Any]:
    def key(row: PipelineRow) -> Any:
        value: Any = getattr(row, {"rows": "rows_in_per_s", "reported": "reported_ms"}.get(column, column))
        return UNKNOWN if value is None else value, row.pipeline

    return key


def _described(broker: BrokerNode, stored: StoredReport, slots: int) -> PipelineDescription:
    report, now_ms = stored.report, broker.clock_ms()
    keys = [history_key(report.pipeline, query.query) for query in report.queries]
    window = broker.history.window(SERIES, slots, keys=keys, last_slot=broker.history.last_slot - 1)
    first = window.last_slot - slots + 1
    return PipelineDescription(
        pipeline=report.pipeline,
        state=state_of(stored, now_ms),
        error=report.error,
        origin=report.origin,
        run=report.run,
        host=report.host,
        sent_by=stored.sent_by,
        sent_from=stored.host,
        started_ms=report.started_ms,
        reported_ms=stored.received_ms,
        reads=report.reads,
        writes=report.writes,
        queries=[
            _query(query, query_state_of(stored, query.state, now_ms), _samples(window.values, key))
            for query, key in zip(report.queries, keys, strict=True)
        ],
        datasets=[
            PipelineDataset(kind=each.kind, name=each.name, detail=each.detail, reads=each.reads)
            for each in report.datasets
        ],
        times_ms=[slot * SAMPLE_MS for slot in range(first, window.last_slot + 1)],
    )


def _samples(values: Any, key: str) -> PipelineSamples:
    return PipelineSamples(
        rows_in_per_s=values[ROWS][key],
        lag=values[LAG][key],
        batch_s=values[BATCH][key],
        state_bytes=values[STATE][key],
    )


def _query(query: QueryReport, state: str, samples: PipelineSamples) -> PipelineQueryView:
    return PipelineQueryView(
        query=query.query,
        state=state,
        error=query.error,
        group=query.group,
        sink=query.sink,
        rows_in=query.rows_in,
        rows_out=query.rows_out,
        rows_in_per_s=query.rows_in_per_s if state in ALIVE else 0.0,
        rows_processed_per_s=query.rows_processed_per_s,
        batch=query.batch,
        batches=query.batches,
        batch_s=query.batch_s,
        lag=query.lag,
        lag_s=query.lag_s,
        state_rows=query.state_rows,
        state_bytes=query.state_bytes,
        watermark_ms=query.watermark_ms,
        progress_ms=query.progress_ms,
        broken=query.broken,
        sources=[_source(each) for each in query.sources],
        samples=samples,
    )


def _source(source: SourceProgress) -> PipelineSource:
    return PipelineSource(
        topic=source.topic,
        partitions=source.partitions,
        lag=source.lag,
        behind=[BehindPartition(partition=each.partition, lag=each.lag) for each in source.behind],
    )


PAGE = PartKind("pipelines", PipelinesAsked, PipelinesPart, _page_here)
ONE = PartKind("pipeline", PipelineAsked, PipelinePart, _one_here)
