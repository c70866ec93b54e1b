"""The graph of a pipeline's datasets, and reports that the broker accepts."""

from pathlib import Path

from tidemill.pipeline_reports.core.report_reading import read_report
from tidemill.pipelines.run.core.pipeline_facts import (
    PipelineFacts,
    ProcessFacts,
    copy_facts,
    pipeline_facts,
    report_of,
)
from tidemill.pipelines.run.core.progress import SinkProgress
from tidemill.pipelines.run.core.query_measurements import QueryFacts, QueryMeasurements
from tidemill.pipelines.run.core.report_size import bounded
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.folder import SPEC
from tidemill.pipelines.spec.loading import load
from tidemill.wire.pipeline_report import (
    REPORT_BYTES_MAX,
    TOPICS_MAX,
    DatasetNode,
    PartitionBehind,
    PipelineReport,
    QueryReport,
    SourceProgress,
    encode_report,
)

PROCESS = ProcessFacts("r1", "worker-1", 1_790_000_000_000)


def accepted(report: PipelineReport) -> PipelineReport:
    """The report as a broker reads it."""
    return read_report(report.pipeline.encode(), encode_report(report))


def test_the_example_pipeline_has_its_graph(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    folder = load(tmp_path / "shop", sink_types())
    facts = pipeline_facts(folder.spec, folder.steps)
    assert (facts.name, facts.reads, facts.writes) == ("shop", ["orders"], ["revenue"])
    assert facts.queries["revenue"] == QueryFacts("shop-revenue", "topic revenue")
    edges = [(each.kind, each.name, [facts.datasets[read].name for read in each.reads]) for each in facts.datasets]
    assert edges == [
        ("topic", "orders", []),
        ("transformation", "priced", ["orders"]),
        ("transformation", "revenue", ["priced"]),
        ("topic", "revenue", ["revenue"]),
        ("lake", "lake/priced", ["priced"]),
    ]
    queries = [QueryMeasurements(SinkProgress(name)).report(each, "running") for name, each in facts.queries.items()]
    assert accepted(report_of(facts, PROCESS, queries, "running")).datasets == list(facts.datasets)


def test_the_address_of_a_database_stays_here(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    spec = tmp_path / "shop" / SPEC
    text = spec.read_text()
    begin, end = text.index("  files:"), text.index("schedule:")
    sink = "  table:\n    from: priced\n    clickhouse: clickhouse://ann:secret@db.example/shop\n    table: priced\n\n"
    spec.write_text(text[:begin] + sink + text[end:])
    folder = load(tmp_path / "shop", sink_types())
    facts = pipeline_facts(folder.spec, folder.steps)
    assert "secret" not in repr(facts)
    assert [(each.kind, each.name) for each in facts.datasets][-1] == ("table", "priced")


def test_a_copy_of_a_topic_reads_it_into_a_folder() -> None:
    facts = copy_facts("archive", "orders", "lake/orders", "tidemill-archive-orders")
    report = accepted(report_of(facts, PROCESS, [], "starting"))
    assert (report.pipeline, report.origin) == ("archive orders", "tidemill pipeline archive")
    assert [(each.kind, each.name, each.reads) for each in report.datasets] == [
        ("topic", "orders", []),
        ("lake", "lake/orders", [0]),
    ]


def test_queries_without_a_file_show_what_spark_reports() -> None:
    query = QueryReport(query="q", sink="MemorySink", sources=[SourceProgress(topic="b"), SourceProgress(topic="a")])
    report = accepted(report_of(PipelineFacts("mine", "Spark"), PROCESS, [query], "running"))
    assert report.reads == ["b", "a"]
    assert [(each.kind, each.name, each.reads) for each in report.datasets] == [
        ("topic", "b", []),
        ("topic", "a", []),
        ("query", "q", [0, 1]),
        ("other", "MemorySink", [2]),
    ]


def test_topics_beyond_the_limit_are_left_out_everywhere() -> None:
    sources = [SourceProgress(topic=f"t{number}") for number in range(3)]
    query = QueryReport(query="q", sources=sources)
    many = [f"m{number}" for number in range(TOPICS_MAX)]
    report = accepted(report_of(PipelineFacts("mine", "Spark", many), PROCESS, [query], "running"))
    assert len(report.reads) == TOPICS_MAX
    assert [source.topic for source in report.queries[0].sources] == ["t0", "t1", "t2"]
    wide = [
        QueryReport(query=f"q{number}", sources=[SourceProgress(topic=f"{number}.{each}") for each in range(50)])
        for number in range(3)
    ]
    report = accepted(report_of(PipelineFacts("wide", "Spark"), PROCESS, wide, "running"))
    assert [len(query.sources) for query in report.queries] == [50, 50, 0]


def test_a_graph_with_more_topics_than_a_report_may_name_is_left_out() -> None:
    topics = [f"t{number}" for number in range(TOPICS_MAX + 1)]
    datasets = [DatasetNode(kind="topic", name=topic) for topic in topics]
    report = accepted(report_of(PipelineFacts("wide", "test", topics, datasets=datasets), PROCESS, [], "running"))
    assert (len(report.reads), report.datasets) == (TOPICS_MAX, [])


def test_a_large_report_is_cut_until_it_fits() -> None:
    behind = [PartitionBehind(partition=number, lag=10**12) for number in range(20)]
    topics = [f"{number}-{'t' * 240}" for number in range(50)]
    sources = [SourceProgress(topic=topic, partitions=20, lag=1, behind=behind) for topic in topics]
    queries = [QueryReport(query=f"q{number}", sources=sources, error="e" * 4_000) for number in range(60)]
    datasets = [DatasetNode(kind="transformation", name=f"{number}{'n' * 190}") for number in range(200)]
    report = report_of(PipelineFacts("large", "Spark", topics, datasets=datasets), PROCESS, queries, "running")
    found = bounded(report)
    assert len(encode_report(found)) <= REPORT_BYTES_MAX
    assert accepted(found).queries
    small = report_of(PipelineFacts("small", "Spark", ["a"]), PROCESS, [QueryReport(query="q")], "running")
    assert bounded(small) == small
