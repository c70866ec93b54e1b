"""Reports are journaled before they are shown, survive a change of the leader, and belong to users of their topics."""

import pytest
from tests.support.pipeline_reports import pipeline_report
from tests.unit.transactions.world import MemoryJournal

from tidemill.coordinator.placement import take_over
from tidemill.model.errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
)
from tidemill.pipeline_reports.coordinator import PARTITION, PipelineReports, ReportSender
from tidemill.pipeline_reports.core.report_table import BURST, KEPT_MS
from tidemill.wire.pipeline_report import PipelineReport

LED = {PARTITION: 0}


class ReportStage:
    """A journal that survives its coordinator, and a clock."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.now_ms = 1_790_000_000_000
        self.may_expire = True

    async def coordinator(self) -> PipelineReports:
        made = PipelineReports(self.journal, clock_ms=lambda: self.now_ms, may_expire=lambda: self.may_expire)
        await take_over(made, LED)
        return made


def sender(name: str = "User:ann", *topics: str) -> ReportSender:
    """A client that may use these topics; without any, all."""

    def check(report: PipelineReport) -> None:
        if topics and not {*report.reads, *report.writes} <= set(topics):
            raise TopicAuthorizationFailed(f"{name} may not use the topics")

    return ReportSender(name, "10.0.0.1", check)


def names(reports: PipelineReports) -> list[str]:
    return sorted(each.report.pipeline for each in reports.all())


async def test_a_report_is_kept_with_its_sender_and_survives_the_leader() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    await reports.take(pipeline_report(state="starting"), sender())
    stage.now_ms += 5_000
    await reports.take(pipeline_report(), sender("User:bob"))
    for each in (reports, await stage.coordinator()):
        found = each.get("shop")
        assert found is not None
        assert (found.report, found.sent_by, found.host) == (pipeline_report(), "User:bob", "10.0.0.1")
        assert found.received_ms == stage.now_ms


async def test_a_report_that_is_not_durable_is_not_shown() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    stage.journal.fail_next = True
    with pytest.raises(KafkaStorageError):
        await reports.take(pipeline_report(), sender())
    assert names(reports) == []


async def test_a_broker_that_does_not_lead_refuses_and_shows_nothing() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    await reports.take(pipeline_report(), sender())
    await take_over(reports, {})
    assert reports.all() == []
    assert reports.get("shop") is None
    assert not reports.has_loaded()
    with pytest.raises(NotLeaderOrFollower):
        await reports.take(pipeline_report(), sender())
    with pytest.raises(NotLeaderOrFollower):
        await reports.forget("shop", sender())
    await take_over(reports, {PARTITION: 1})
    assert names(reports) == ["shop"]


async def test_a_client_reports_only_about_topics_that_it_may_use() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    mallory = sender("User:mallory", "elsewhere")
    with pytest.raises(TopicAuthorizationFailed):
        await reports.take(pipeline_report(), mallory)
    await reports.take(pipeline_report(), sender("User:ann", "orders", "revenue"))
    stolen = pipeline_report(reads=["elsewhere"], writes=[], queries=[], datasets=[])
    with pytest.raises(TopicAuthorizationFailed):
        await reports.take(stolen, mallory)
    with pytest.raises(TopicAuthorizationFailed):
        await reports.forget("shop", mallory)
    moved = pipeline_report(reads=["elsewhere"], writes=[], queries=[], datasets=[])
    await reports.take(moved, sender("User:ann", "elsewhere"))
    found = reports.get("shop")
    assert found is not None
    assert found.report == moved, "its own sender may change its topics"


async def test_a_pipeline_is_forgotten_and_stays_forgotten() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    await reports.take(pipeline_report(state="stopped"), sender())
    assert await reports.forget("shop", sender())
    assert not await reports.forget("shop", sender())
    assert names(reports) == names(await stage.coordinator()) == []


async def test_old_reports_expire_unless_the_clock_is_in_doubt() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    await reports.take(pipeline_report("old"), sender())
    stage.now_ms += KEPT_MS
    await reports.take(pipeline_report("new"), sender())
    stage.now_ms += 1
    stage.may_expire = False
    await reports.tick()
    assert names(reports) == ["new", "old"]
    stage.may_expire = True
    await reports.tick()
    assert names(reports) == names(await stage.coordinator()) == ["new"]


async def test_too_many_reports_of_one_pipeline_are_refused() -> None:
    stage = ReportStage()
    reports = await stage.coordinator()
    for _ in range(BURST):
        await reports.take(pipeline_report(), sender())
    with pytest.raises(ThrottlingQuotaExceeded):
        await reports.take(pipeline_report(), sender())
    stage.now_ms += 1_000
    await reports.take(pipeline_report(), sender())
