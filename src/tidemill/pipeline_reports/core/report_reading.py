"""Reads the report of a client, and rejects what would mislead a reader of the console or of metrics."""

from collections.abc import Sequence

import msgspec

from tidemill.model.errors import InvalidRecord, MessageTooLarge, TidemillError
from tidemill.model.topics import check_topic_name
from tidemill.wire.pipeline_report import REPORT_BYTES_MAX, PipelineReport, StoredReport

SHOWN_CHARS = 200


def read_key(key: bytes | None) -> str:
    """The name of the pipeline, from the key of a record."""
    try:
        name = (key or b"").decode()
    except UnicodeDecodeError:
        raise InvalidRecord("the key of a report is the name of its pipeline, and this one is not UTF-8") from None
    if not name or len(name) > SHOWN_CHARS or not name.isprintable():
        raise InvalidRecord(f"the name of a pipeline has 1 to {SHOWN_CHARS} printable characters")
    return name


def read_report(key: bytes | None, value: bytes) -> PipelineReport:
    """The report in a record. InvalidRecord says what is wrong."""
    if len(value) > REPORT_BYTES_MAX:
        raise MessageTooLarge(f"the report has {len(value)} bytes, and {REPORT_BYTES_MAX} are accepted")
    name = read_key(key)
    try:
        report = msgspec.json.decode(value, type=PipelineReport)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidRecord(f"the report is not valid: {' '.join(str(error).split())[:SHOWN_CHARS]}") from None
    if report.pipeline != name:
        raise InvalidRecord("the key of a report is the name of its pipeline, and this one differs")
    _check_topics([*report.reads, *report.writes])
    _check_queries(report)
    _check_datasets(report)
    return report


def read_stored(value: bytes) -> StoredReport | None:
    """A report of the topic; None for one that a later version wrote in another form."""
    try:
        return msgspec.json.decode(value, type=StoredReport)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _check_topics(topics: Sequence[str]) -> None:
    """Topics give the rights to a report, so one without topics has no owner."""
    if not topics:
        raise InvalidRecord("the report names no topic that the pipeline reads or writes")
    for topic in topics:
        try:
            check_topic_name(topic)
        except TidemillError as error:
            raise InvalidRecord(str(error)) from None


def _check_queries(report: PipelineReport) -> None:
    names = [each.query for each in report.queries]
    if len(set(names)) != len(names):
        raise InvalidRecord("two queries of the report have the same name")
    for name in names:
        if not name.isprintable():
            raise InvalidRecord("the name of a query has characters that are not printable")
    read = {source.topic for query in report.queries for source in query.sources}
    if not read <= set(report.reads):
        raise InvalidRecord(f"a query reads {min(read - set(report.reads))[:SHOWN_CHARS]}, which is not in `reads`")


def _check_datasets(report: PipelineReport) -> None:
    """A dataset reads those before it, so the graph has no cycle."""
    for place, dataset in enumerate(report.datasets):
        if any(read >= place for read in dataset.reads):
            raise InvalidRecord(f"dataset {place} of the report reads one that is not before it")
    named = {each.name for each in report.datasets if each.kind in ("topic", "timeline")}
    hidden = named - {*report.reads, *report.writes}
    if hidden:
        raise InvalidRecord(f"the graph names {min(hidden)[:SHOWN_CHARS]!r}, which is in neither `reads` nor `writes`")
