"""Makes a report fit into the limit of the broker. What is dropped first is what matters least."""

from msgspec.structs import replace

from tidemill.wire.pipeline_report import QUERIES_MAX, REPORT_BYTES_MAX, PipelineReport, encode_report


def bounded(report: PipelineReport) -> PipelineReport:
    """The report, without the lag of single partitions, then the graph, then queries, where it would be too large."""
    found = replace(report, queries=report.queries[:QUERIES_MAX])
    if len(encode_report(found)) <= REPORT_BYTES_MAX:
        return found
    bare = [replace(query, sources=[replace(source, behind=[]) for source in query.sources]) for query in found.queries]
    found = replace(found, queries=bare)
    if len(encode_report(found)) > REPORT_BYTES_MAX:
        found = replace(found, datasets=[])
    while len(encode_report(found)) > REPORT_BYTES_MAX:
        found = replace(found, queries=found.queries[: len(found.queries) // 2])
    return found
