"""The thread that sends reports: only the newest counts, a failure is not fatal, and the end is not lost."""

from collections.abc import Callable
from functools import partial

import pytest
from tests.support.pipeline_reports import pipeline_report
from tests.support.waiting import eventually

from tidemill.model.errors import CorruptMessage, TopicAuthorizationFailed
from tidemill.pipelines.run import report_uplink
from tidemill.pipelines.run.report_uplink import ReportUplink
from tidemill.wire.pipeline_report import PipelineReport

OPTIONS = {"bootstrap.servers": "127.0.0.1:1"}
REPORTS = 500


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[PipelineReport]:
    found: list[PipelineReport] = []
    monkeypatch.setattr(report_uplink, "deliver", lambda _, report: found.append(report))
    return found


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[PipelineReport]:
    tried: list[PipelineReport] = []

    def deliver(_: object, report: PipelineReport) -> None:
        tried.append(report)
        raise error

    monkeypatch.setattr(report_uplink, "deliver", deliver)
    monkeypatch.setattr(report_uplink, "EVERY_S", 0.001)
    monkeypatch.setattr(report_uplink, "RETRY_S_MAX", 0.002)
    monkeypatch.setattr(report_uplink, "REPEAT_S", 0.002)
    return tried


def has_state(reports: list[PipelineReport], state: str) -> bool:
    return bool(reports) and reports[-1].state == state


def has_run(reports: list[PipelineReport], run: str) -> bool:
    return any(each.run == run for each in reports)


def ignore(_: str) -> None:
    pass


def test_the_first_report_and_every_new_state_are_sent_at_once(delivered: list[PipelineReport]) -> None:
    uplink = ReportUplink(OPTIONS, ignore)
    for state in ("starting", "running", "failed"):
        uplink.send(pipeline_report(state=state))
        eventually(partial(has_state, delivered, state), f"{state} is not sent")
    uplink.close()
    assert [each.state for each in delivered] == ["starting", "running", "failed"]


def test_only_the_newest_of_many_reports_is_sent(delivered: list[PipelineReport]) -> None:
    uplink = ReportUplink(OPTIONS, ignore)
    for number in range(REPORTS):
        uplink.send(pipeline_report(run=str(number)))
    uplink.close()
    assert delivered[-1].run == str(REPORTS - 1), "the last one is sent at the end"
    assert len(delivered) < 5


def test_an_equal_report_is_not_sent_again(delivered: list[PipelineReport]) -> None:
    uplink = ReportUplink(OPTIONS, ignore)
    uplink.send(pipeline_report())
    eventually(lambda: delivered, "the report is not sent")
    for _ in range(REPORTS):
        uplink.send(pipeline_report())
    uplink.close()
    assert len(delivered) == 1


def test_a_quiet_pipeline_repeats_its_report(delivered: list[PipelineReport], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_uplink, "EVERY_S", 0.001)
    monkeypatch.setattr(report_uplink, "REPEAT_S", 0.002)
    uplink = ReportUplink(OPTIONS, ignore)
    uplink.send(pipeline_report())
    eventually(lambda: len(delivered) > 3, "the report is not repeated")
    uplink.close()


@pytest.mark.parametrize("error", [TopicAuthorizationFailed("User:ann may not READ TOPIC orders"), CorruptMessage()])
def test_a_failure_is_retried_and_said_once_if_the_user_can_change_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tried, said = failing(monkeypatch, error), list[str]()
    uplink = ReportUplink(OPTIONS, said.append)
    for number in range(4):
        uplink.send(pipeline_report(run=str(number)))
        eventually(partial(has_run, tried, str(number)), "it is not tried again")
    uplink.close()
    if isinstance(error, TopicAuthorizationFailed):
        [line] = said
        assert "User:ann may not READ TOPIC orders; reports need READ" in line
    else:
        assert said == []


def test_an_unexpected_error_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: Callable[[], int] = failing(monkeypatch, RuntimeError("a bug")).__len__
    uplink = ReportUplink(OPTIONS, ignore)
    uplink.send(pipeline_report())
    uplink.send(pipeline_report(state="failed"))
    eventually(lambda: tried() > 1, "the thread has ended")
    uplink.close()
