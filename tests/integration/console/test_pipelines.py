"""Pipelines in the JSON API and in metrics: from reports to every broker, with the rights of their topics."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.support.cluster_processes import running_brokers
from tests.support.guarded_console import ADMIN, GuardedConsole, guarded_console
from tests.support.pipeline_reports import has_sent, pipeline_report, query_report, send_record, send_report
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import (
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import PIPELINES, TopicPartition
from tidemill.pipelines.run.report_uplink import ReportUplink
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.testing import Broker
from tidemill.wire.pipeline_report import REPORT_BYTES_MAX, PipelineReport, encode_report

WAIT_S = 30.0
PARTITION = TopicPartition(PIPELINES, 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as opened:
        yield opened


def api(broker: Broker, path: str = "", method: str = "GET", **query: Any) -> httpx.Response:
    return httpx.request(method, f"{broker.http}/api/v1/pipelines{path}", params=query, timeout=WAIT_S)


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["pipeline"] for each in answer.json()["pipelines"]]


def test_a_report_is_listed_described_and_forgotten(broker: Broker, client: KafkaClient) -> None:
    assert api(broker).json() == {"pipelines": [], "total": 0, "states": {}}
    assert api(broker, "/shop").status_code == 404
    send_report(client, pipeline_report())
    [row] = api(broker).json()["pipelines"]
    assert (row["pipeline"], row["state"], row["lag"], row["rows_in_per_s"]) == ("shop", "running", 7, 250.0)
    found = api(broker, "/shop").json()
    assert (found["sent_by"], found["sent_from"], found["run"]) == ("User:ANONYMOUS", "127.0.0.1", "r1")
    assert found["queries"][0]["sources"][0]["behind"] == [{"partition": 1, "lag": 7}]
    assert [each["reads"] for each in found["datasets"]] == [[], [0], [1]]
    running = api(broker, "/shop", "DELETE")
    assert (running.status_code, "stop it first" in running.json()["error"]) == (409, True)
    send_report(client, pipeline_report(state="stopped"))
    assert api(broker, "/shop").json()["queries"][0]["rows_in_per_s"] == 0.0
    assert api(broker, "/shop", "DELETE").status_code == 204
    assert api(broker, "/shop", "DELETE").status_code == 404
    assert api(broker).json()["total"] == 0


def test_pipelines_are_searched_sorted_filtered_and_paged(broker: Broker, client: KafkaClient) -> None:
    for number in range(5):
        state = "failed" if number == 3 else "running"
        queries = [query_report(lag=number, rows_in_per_s=float(10 - number))]
        send_report(client, pipeline_report(f"sorted/{number}", state=state, queries=queries))
    found = {"search": "sorted"}
    assert names(api(broker, **found, sort="lag", descending="true", rows=2)) == ["sorted/4", "sorted/3"]
    assert names(api(broker, **found, rows=2, page=3)) == ["sorted/4"]
    assert names(api(broker, **found, state="failed")) == ["sorted/3"]
    assert names(api(broker, **found, sort="rows")) == ["sorted/3", "sorted/4", "sorted/2", "sorted/1", "sorted/0"]
    assert api(broker, **found).json()["states"] == {"failed": 1, "running": 4}
    assert api(broker, f"/{quote('sorted/3', safe='')}").json()["state"] == "failed"


def test_a_failed_pipeline_needs_attention(broker: Broker, client: KafkaClient) -> None:
    send_report(client, pipeline_report("broken", state="failed", error="it broke"))
    found = httpx.get(f"{broker.http}/api/v1/overview", timeout=WAIT_S).json()["attention"]
    assert ("Pipeline broken has failed", "it broke") in [(each["title"], each["detail"]) for each in found]


def test_reports_become_metrics(broker: Broker, client: KafkaClient) -> None:
    send_report(client, pipeline_report('me"as\\ured'))
    text = httpx.get(f"{broker.http}/metrics", timeout=WAIT_S).text
    labels = 'pipeline="me\\"as\\\\ured",query="revenue"'
    assert f"tidemill_pipeline_rows_in_total{{{labels}" in text
    assert f"tidemill_pipeline_lag_records{{{labels}" in text


WRONG: dict[str, tuple[bytes | None, bytes | None, type[KafkaError]]] = {
    "no key": (None, b"{}", InvalidRecord),
    "no JSON": (b"a", b"<script>", InvalidRecord),
    "another name": (b"a", encode_report(pipeline_report("b")), InvalidRecord),
    "too large": (b"a", bytes(REPORT_BYTES_MAX + 1), MessageTooLarge),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_reports_are_refused(broker: Broker, client: KafkaClient, wrong: str) -> None:
    key, value, error = WRONG[wrong]
    with pytest.raises(error):
        send_record(client, key, value)
    assert "a" not in names(api(broker))


def test_a_batch_has_one_plain_report(broker: Broker, client: KafkaClient) -> None:
    record = NewRecord(b"batched", encode_report(pipeline_report("batched")), timestamp=1)
    for batch in (build_batch([record, record]), build_batch([record], codec=Codec.GZIP)):
        with pytest.raises(InvalidRecord):
            client.produce(PARTITION, batch)
    with pytest.raises(UnknownTopicOrPartition):
        client.produce(TopicPartition(PIPELINES, 1), build_batch([record]))
    assert names(api(broker, search="batched")) == []


def test_the_thread_of_a_pipeline_sends_its_reports(broker: Broker) -> None:
    said: list[str] = []
    uplink = ReportUplink({"bootstrap.servers": broker.bootstrap_servers}, said.append)
    uplink.send(pipeline_report("threaded", state="starting"))
    eventually(lambda: names(api(broker, search="threaded")) == ["threaded"], "the first report is sent at once")
    uplink.send(pipeline_report("threaded", state="failed", error="it broke"))
    uplink.close()
    assert api(broker, "/threaded").json()["error"] == "it broke"
    assert said == []


def test_a_broker_that_does_not_answer_does_not_delay_a_pipeline() -> None:
    uplink = ReportUplink({"bootstrap.servers": "127.0.0.1:1"}, print)
    began = time.monotonic()
    for number in range(1_000):
        uplink.send(pipeline_report(f"p{number}"))
    assert time.monotonic() - began < 5
    assert threading.active_count() < 100


READER, RUNNER, OTHER = "reader", "runner", "other"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedConsole]:
    with guarded_console(tmp_path_factory.mktemp("rights")) as console:
        console.add_users([READER, RUNNER, OTHER])
        console.grant(READER, operations=["describe"], topics=["orders", "revenue"])
        console.grant(RUNNER, operations=["read"], topics=["orders"])
        console.grant(RUNNER, operations=["write"], topics=["revenue"])
        console.grant(OTHER, operations=["all"], topics=["orders", "elsewhere"])
        yield console


def send_as(console: GuardedConsole, user: str, report: PipelineReport | None, name: str = "") -> None:
    with KafkaClient({**console.kafka, "sasl.username": user}) as client:
        if report is None:
            send_record(client, name.encode(), None)
        else:
            send_report(client, report)


def test_reports_follow_the_rights_on_their_topics(guarded: GuardedConsole) -> None:
    """No ACL names the topic of the reports."""
    send_as(guarded, RUNNER, pipeline_report(state="stopped"))
    seen = {name: guarded.ask(name, "GET", "/api/v1/pipelines").json()["total"] for name in (READER, RUNNER, OTHER)}
    assert seen == {READER: 1, RUNNER: 1, OTHER: 0}
    found = {name: guarded.ask(name, "GET", "/pipelines/shop").status_code for name in (READER, OTHER, ADMIN)}
    assert found == {READER: 200, OTHER: 404, ADMIN: 200}
    for user, report in (
        (OTHER, pipeline_report()),
        (READER, pipeline_report()),
        (OTHER, pipeline_report(reads=["elsewhere"], writes=[], queries=[], datasets=[])),
        (OTHER, None),
        (READER, None),
    ):
        with pytest.raises(TopicAuthorizationFailed):
            send_as(guarded, user, report, "shop")
    with KafkaClient({**guarded.kafka, "sasl.username": OTHER}) as client, pytest.raises(TopicAuthorizationFailed):
        client.fetch(PARTITION, 0)
    assert guarded.good(ADMIN, "GET", "/api/v1/pipelines/shop")["sent_by"] == f"User:{RUNNER}"


def test_forgetting_a_pipeline_needs_its_rights_and_is_audited(guarded: GuardedConsole) -> None:
    send_as(guarded, RUNNER, pipeline_report("doomed", state="failed"))
    refused = {name: guarded.ask(name, "DELETE", "/api/v1/pipelines/doomed").status_code for name in (READER, OTHER)}
    assert refused == {READER: 403, OTHER: 404}
    assert guarded.ask(RUNNER, "DELETE", "/api/v1/pipelines/doomed").status_code == 204
    events = [each for each in guarded.audit() if each["what"] == "pipeline_forgotten"]
    assert [(each["who"], each["pipeline"]) for each in events] == [(f"User:{RUNNER}", "doomed")]


def test_every_broker_shows_the_same_and_a_new_leader_still_does() -> None:
    with running_brokers(3, http="127.0.0.1:0") as brokers, ExitStack() as opened:
        apis = {
            number: opened.enter_context(httpx.Client(base_url=f"http://{servers['http']}/api/v1", timeout=WAIT_S))
            for number, servers in brokers.servers.items()
        }
        assert [each.get("/pipelines").json()["total"] for each in apis.values()] == [0, 0, 0]
        with KafkaClient({"bootstrap.servers": brokers.bootstrap}) as client:
            eventually(lambda: has_sent(client, pipeline_report()), "the topic of the reports is created")
            leader = client.metadata([PIPELINES])[PIPELINES].leaders[0]
        rows = [each.get("/pipelines").json()["pipelines"] for each in apis.values()]
        assert [each["pipeline"] for each in rows[0]] == ["shop"]
        assert rows[0] == rows[1] == rows[2]
        brokers.kill(leader)
        left = [each for number, each in apis.items() if number != leader]
        eventually(
            lambda: [each.get("/pipelines/shop").status_code for each in left] == [200, 200],
            "the next leader has read the reports",
        )
