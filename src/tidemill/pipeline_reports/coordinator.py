"""The coordinator of reports: it checks what pipelines report, journals it, and keeps the last report of each.

All reports are in one partition of `__pipelines`. The leader of the partition accepts reports and answers the others,
so every broker shows the same. Rights are checked by the server that a report comes through: a report belongs to those
who may use the topics that it names.

A report changes the table only after it is durable. A leader that takes over reads the topic first.

The shapes of reports need msgspec, which takes longer to load than the rest. A broker loads it with its console, after
it is ready, or with the first report.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import structlog

from tidemill.model.errors import NotLeaderOrFollower
from tidemill.model.topics import PIPELINES
from tidemill.pipeline_reports.core.report_table import ReportTable
from tidemill.records.journal import Journal

if TYPE_CHECKING:
    from tidemill.wire.pipeline_report import PipelineReport, StoredReport

PARTITION = 0

CheckRights: TypeAlias = "Callable[[PipelineReport], None]"
"""Raises unless the sender may use the topics of a report."""

log = structlog.get_logger("tidemill.pipelines")


class ReportSender(NamedTuple):
    """The client that sends a report."""

    name: str
    host: str
    check: CheckRights


class PipelineReports:
    """The reports of all pipelines, at the leader of their partition."""

    def __init__(
        self, journal: Journal, *, clock_ms: Callable[[], int], may_expire: Callable[[], bool] = lambda: True
    ) -> None:
        self._journal = journal
        self._clock_ms = clock_ms
        self._may_expire = may_expire
        self._table = ReportTable()
        self.led: Mapping[int, int] | None = None
        """The partitions that this broker leads, with their epochs; None before the start."""
        self._loaded: dict[int, int] = {}
        self._turn = asyncio.Lock()

    def start(self) -> None:
        """Do nothing: the broker calls `tick`."""

    @property
    def loaded(self) -> Collection[int]:
        """The partitions that were read."""
        return self._loaded.keys()

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the reports, which another broker keeps now."""
        for partition in partitions:
            self._loaded.pop(partition, None)
        self._table = ReportTable()

    async def load(self, partition: int, epoch: int) -> None:
        """Read the reports of a partition that this broker leads since `epoch`."""
        table = ReportTable()
        async for records in self._journal.replay(partition):
            from tidemill.pipeline_reports.core.report_reading import read_stored  # noqa: PLC0415 -- see the top

            for record in records:
                name = (record.key or b"").decode(errors="replace")
                stored = None if record.value is None else read_stored(record.value)
                if stored is None:
                    table.remove(name)
                else:
                    table.put(stored)
        self._table = table
        self._loaded[partition] = epoch

    def has_loaded(self) -> bool:
        """Whether this broker has the reports now."""
        epoch = self._loaded.get(PARTITION)
        return epoch is not None and self._journal.leads(PARTITION, epoch)

    def all(self) -> "list[StoredReport]":
        """The last report of each pipeline; nothing at a broker that does not lead."""
        return list(self._table) if self.has_loaded() else []

    def get(self, pipeline: str) -> "StoredReport | None":
        """The last report of a pipeline."""
        return self._table.get(pipeline) if self.has_loaded() else None

    async def take(self, report: "PipelineReport", sender: ReportSender) -> None:
        """Store a report; durable when this returns. The sender needs the rights of the replaced report as well."""
        from tidemill.wire.pipeline_report import StoredReport  # noqa: PLC0415 -- see the top

        sender.check(report)
        async with self._turn:
            self._check_leads()
            now_ms = self._clock_ms()
            known = self._table.get(report.pipeline)
            if known is not None and known.sent_by != sender.name:
                sender.check(known.report)
            self._table.check_rate(report.pipeline, now_ms)
            replaced = self._table.to_replace(report, now_ms)
            stored = StoredReport(report=report, sent_by=sender.name, host=sender.host, received_ms=now_ms)
            await self._append([(each, None) for each in replaced] + [(report.pipeline, stored)])

    async def forget(self, pipeline: str, sender: ReportSender) -> bool:
        """Forget a pipeline. Returns whether it was known. One that still runs is back with its next report."""
        async with self._turn:
            self._check_leads()
            known = self._table.get(pipeline)
            if known is None:
                return False
            sender.check(known.report)
            await self._append([(pipeline, None)])
            return True

    async def tick(self) -> None:
        """Forget the pipelines that ended long ago."""
        async with self._turn:
            if self.has_loaded() and self._may_expire():
                expired = self._table.expired(self._clock_ms())
                if expired:
                    await self._append([(each, None) for each in expired])
                    log.info("pipelines_forgotten", count=len(expired))

    async def _append(self, changes: "list[tuple[str, StoredReport | None]]") -> None:
        from tidemill.wire.pipeline_report import encode_report  # noqa: PLC0415 -- see the top

        records = [(name.encode(), None if stored is None else encode_report(stored)) for name, stored in changes]
        await self._journal.append(PARTITION, records)
        for name, stored in changes:
            if stored is None:
                self._table.remove(name)
            else:
                self._table.put(stored)

    def _check_leads(self) -> None:
        if not self.has_loaded():
            raise NotLeaderOrFollower(f"this broker does not lead {PIPELINES}, or still reads it; try again")
