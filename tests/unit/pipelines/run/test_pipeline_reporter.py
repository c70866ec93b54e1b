"""The reporter says how a pipeline and each of its queries run and end."""

import pytest
from tests.unit.pipelines.run.scripted_queries import report

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run import pipeline_reporter
from tidemill.pipelines.run.core.pipeline_facts import PipelineFacts
from tidemill.pipelines.run.core.query_measurements import QueryFacts
from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
from tidemill.wire.pipeline_report import QUERIES_MAX, PipelineReport

SHOP = PipelineFacts("shop", "test", ["orders"], ["revenue"], {"revenue": QueryFacts("g", "s"), "files": QueryFacts()})
SESSION = PipelineFacts("mine", "Spark")


class KeptReports:
    """The uplink of these tests: it keeps the reports that it should send."""

    kept: list[PipelineReport]

    def __init__(self, *_: object) -> None:
        KeptReports.kept = []

    def send(self, sent: PipelineReport) -> None:
        self.kept.append(sent)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def uplink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_reporter, "ReportUplink", KeptReports)


def reporter(facts: PipelineFacts = SHOP) -> PipelineReporter:
    return PipelineReporter(facts, {"bootstrap.servers": "127.0.0.1:1"}, print, lambda: 1_000)


def states(sent: PipelineReport) -> tuple[str, dict[str, str]]:
    return sent.state, {each.query: each.state for each in sent.queries}


def test_a_run_starts_runs_and_stops() -> None:
    with reporter() as to_broker:
        to_broker.take({"revenue": [report(10, 10, 30)]})
    first, second, last = KeptReports.kept
    assert states(first) == ("starting", {"revenue": "starting", "files": "starting"})
    assert states(second) == ("running", {"revenue": "running", "files": "running"})
    assert (second.queries[0].rows_in, second.queries[0].lag) == (10, 20)
    assert states(last) == ("stopped", {"revenue": "stopped", "files": "stopped"})
    assert len({each.run for each in KeptReports.kept}) == 1


def test_a_failure_names_its_query() -> None:
    with pytest.raises(PipelineError), reporter():
        raise PipelineError("revenue: the disk\nis full")
    last = KeptReports.kept[-1]
    assert states(last) == ("failed", {"revenue": "failed", "files": "stopped"})
    assert last.error == last.queries[0].error == "revenue: the disk is full"


def test_an_interrupt_is_no_failure() -> None:
    with pytest.raises(KeyboardInterrupt), reporter():
        raise KeyboardInterrupt
    assert KeptReports.kept[-1].state == "stopped"


def test_queries_of_a_session_come_and_go() -> None:
    session = reporter(SESSION)
    session.begin_query("a")
    assert KeptReports.kept == [], "no topic is known yet"
    session.take({"a": [report(1, 1, 1)]})
    session.begin_query("b")
    session.end_query("a", "it broke")
    assert states(KeptReports.kept[-1]) == ("running", {"a": "failed", "b": "running"})
    assert KeptReports.kept[-1].error == "a: it broke"
    session.end_query("b", "")
    assert states(KeptReports.kept[-1]) == ("failed", {"a": "failed", "b": "stopped"})
    session.begin_query("a")
    assert states(KeptReports.kept[-1]) == ("running", {"a": "running", "b": "stopped"})
    session.close()
    assert KeptReports.kept[-1].state == "stopped"


def test_ended_queries_make_room() -> None:
    session = reporter(SESSION)
    for number in range(QUERIES_MAX + 5):
        session.begin_query(f"q{number}")
        session.take({f"q{number}": [report(1, 1, 1)]})
        session.end_query(f"q{number}", "")
    names = [each.query for each in KeptReports.kept[-1].queries]
    assert names == [f"q{number}" for number in range(5, QUERIES_MAX + 5)]
