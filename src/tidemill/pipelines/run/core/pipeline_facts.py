"""What a pipeline is: the topics that it reads and writes, its queries, and the graph of its datasets."""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from tidemill.pipelines.run.core.query_measurements import QueryFacts, name_text
from tidemill.pipelines.spec.core.spec import Sink, Source, Spec, Transformation
from tidemill.wire.pipeline_report import (
    NAME_CHARS_MAX,
    NODE_READS_MAX,
    NODES_MAX,
    TOPICS_MAX,
    DatasetKind,
    DatasetNode,
    PipelineReport,
    QueryReport,
    RunState,
)

KINDS: Mapping[str, DatasetKind] = {
    "topic": "topic",
    "timeline": "timeline",
    "parquet": "lake",
    "delta": "lake",
    "iceberg": "lake",
    "clickhouse": "table",
    "console": "console",
}
"""The kind of dataset that a sink type writes. The address of another kind may have a password, so it is left out."""
SHOWN_TARGETS = ("topic", "timeline", "lake")


class ReadingStep(Protocol):
    """A transformation with the views that it reads, such as `pipelines.spec.folder.TransformationStep`."""

    @property
    def transformation(self) -> Transformation:
        """The transformation."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the views."""


class PipelineFacts(NamedTuple):
    """What does not change while a pipeline runs."""

    name: str
    origin: str
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    queries: Mapping[str, QueryFacts] = {}
    datasets: Sequence[DatasetNode] = ()


class ProcessFacts(NamedTuple):
    """The process that runs a pipeline: an id that it has drawn, its host, and its start."""

    run: str
    host: str
    started_ms: int


def pipeline_facts(spec: Spec, steps: Sequence[ReadingStep]) -> PipelineFacts:
    """The facts of a pipeline that has a pipeline.yml. Each of its sinks is a query.

    `steps` are the transformations in the order of their dependencies.
    """
    return PipelineFacts(
        name=spec.name,
        origin="tidemill pipeline run",
        reads=list(dict.fromkeys(source.topic for source in spec.sources)),
        writes=list(dict.fromkeys(sink.target for sink in spec.sinks if _kind(sink) in ("topic", "timeline"))),
        queries={sink.name: QueryFacts(f"{spec.name}-{sink.name}", _sink_text(sink)) for sink in spec.sinks},
        datasets=list(_datasets(spec, steps)),
    )


def copy_facts(command: str, topic: str, folder: str, group: str) -> PipelineFacts:
    """The facts of a built-in command that copies a topic into a folder."""
    datasets = [
        DatasetNode(kind="topic", name=topic),
        DatasetNode(kind="lake", name=folder[-NAME_CHARS_MAX:], detail=command, reads=[0]),
    ]
    name = f"{command} {topic}"
    query = QueryFacts(group, f"lake {folder}")
    return PipelineFacts(name, f"tidemill pipeline {command}", [topic], [], {topic: query}, datasets)


def report_of(
    facts: PipelineFacts, process: ProcessFacts, queries: Sequence[QueryReport], state: RunState, error: str = ""
) -> PipelineReport:
    """The report, with what Spark has said about the queries."""
    read = [source.topic for query in queries for source in query.sources]
    reads = list(dict.fromkeys([*read, *facts.reads]))[:TOPICS_MAX]
    queries = [_within(query, reads) for query in queries]
    writes = list(facts.writes)[:TOPICS_MAX]
    datasets = list(facts.datasets) or list(_of_queries(reads, queries))
    if not {each.name for each in datasets if each.kind in ("topic", "timeline")} <= {*reads, *writes}:
        datasets = []  # there are more topics than a report may name
    return PipelineReport(
        pipeline=name_text(facts.name),
        origin=facts.origin,
        run=process.run,
        host=process.host[:NAME_CHARS_MAX],
        state=state,
        error=error,
        started_ms=process.started_ms,
        reads=reads,
        writes=writes,
        queries=list(queries),
        datasets=datasets,
    )


def _within(query: QueryReport, reads: Sequence[str]) -> QueryReport:
    """The query with those of its topics that the report names."""
    known = [source for source in query.sources if source.topic in reads]
    return query if len(known) == len(query.sources) else replace(query, sources=known)


def _datasets(spec: Spec, steps: Sequence[ReadingStep]) -> Iterable[DatasetNode]:
    """Topics, then transformations in the order of their dependencies, then sinks."""
    places: dict[str, int] = {}
    nodes: list[DatasetNode] = []
    for source in spec.sources:
        places[source.name] = len(nodes)
        nodes.append(DatasetNode(kind="topic", name=source.topic, detail=_source_text(source)))
    for step in steps:
        each = step.transformation
        reads = [places[view] for view in step.reads if view in places][:NODE_READS_MAX]
        places[each.name] = len(nodes)
        nodes.append(
            DatasetNode(kind="transformation", name=each.name, detail=posixpath.basename(each.file), reads=reads)
        )
    for sink in spec.sinks:
        kind = _kind(sink)
        name = sink.target[-NAME_CHARS_MAX:] if kind in SHOWN_TARGETS else (sink.columns or {}).get("table", sink.name)
        detail = sink.mode if sink.kind == kind else sink.kind
        nodes.append(DatasetNode(kind=kind, name=name, detail=detail, reads=[places[sink.view]]))
    return nodes if len(nodes) <= NODES_MAX else []


def _of_queries(reads: Sequence[str], queries: Sequence[QueryReport]) -> Iterable[DatasetNode]:
    """The graph of queries without a pipeline.yml: what Spark reports about their sources and sinks."""
    nodes = [DatasetNode(kind="topic", name=topic) for topic in reads]
    for query in queries:
        read = [reads.index(source.topic) for source in query.sources][:NODE_READS_MAX]
        nodes.append(DatasetNode(kind="query", name=query.query, reads=read))
        if query.sink:
            nodes.append(DatasetNode(kind="other", name=query.sink, reads=[len(nodes) - 1]))
    return nodes if len(nodes) <= NODES_MAX else []


def _kind(sink: Sink) -> DatasetKind:
    return KINDS.get(sink.kind, "other")


def _source_text(source: Source) -> str:
    view = "" if source.name == source.topic else f"view {source.name}, "
    return f"{view}{source.format}"


def _sink_text(sink: Sink) -> str:
    shown = f" {sink.target}" if _kind(sink) in SHOWN_TARGETS else ""
    return f"{sink.kind}{shown}"
