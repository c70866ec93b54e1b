"""Takes the reports of pipelines, which are records that clients produce to the internal topic `__pipelines`.

A client needs no right on that topic. A report belongs to those who may use the topics that it names: its sender reads
its sources and writes its targets, or may ALTER the cluster. So a pipeline with rights on its topics can report, and
cannot replace the report of a pipeline over topics that it may not use.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.model.errors import InvalidRecord, TidemillError, UnknownTopicOrPartition
from tidemill.model.topics import PIPELINES
from tidemill.pipeline_reports.coordinator import PARTITION, ReportSender
from tidemill.records.compression import Codec
from tidemill.records.read import read_records
from tidemill.records.validate import check_produced
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Call

if TYPE_CHECKING:
    from tidemill.wire.pipeline_report import PipelineReport

_TOPIC = ResourceType.TOPIC


async def ensure_reports_topic(call: Call) -> None:
    """Create the topic when a client looks for it, so that the client finds its leader."""
    if call.broker.view.topic(PIPELINES) is None:
        with suppress(TidemillError):  # the response says that the topic is missing
            await call.broker.internal.create(PIPELINES)


async def take_report(call: Call, index: int, batch: bytearray | memoryview) -> None:
    """Store the report in a batch, or forget the pipeline of its key."""
    from tidemill.pipeline_reports.core.report_reading import read_key, read_report  # noqa: PLC0415 -- loads msgspec

    header = check_produced(batch, version=call.version)
    if index != PARTITION or call.broker.view.topic(PIPELINES) is None:
        raise UnknownTopicOrPartition(f"{PIPELINES} has partition {PARTITION} only")
    if header.count != 1 or header.codec != Codec.NONE or header.transactional or header.control:
        raise InvalidRecord(f"{PIPELINES} takes one report in a batch, not compressed and not in a transaction")
    [record] = read_records(batch)
    reports = call.broker.pipeline_reports
    sender = ReportSender(str(call.principal), call.client_host, lambda report: _check(call, report))
    if record.value is not None:
        await reports.take(read_report(record.key, bytes(record.value)), sender)
        return
    name = read_key(record.key)
    if await reports.forget(name, sender):
        call.changed("pipeline_forgotten", pipeline=name)


def _check(call: Call, report: "PipelineReport") -> None:
    if call.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return
    for topic in report.reads:
        call.check(Operation.READ, _TOPIC, topic)
    for topic in report.writes:
        call.check(Operation.WRITE, _TOPIC, topic)
