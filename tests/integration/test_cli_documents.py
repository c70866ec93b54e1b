"""Commands print with `--json` what the JSON API sends: the same fields with the same values.

A command asks only Kafka or gRPC, so it does not know everything. What it does not know is null.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.command_line import CommandLine
from tests.support.document_comparison import differences

from tidemill import Message, Timeline
from tidemill.testing import Broker

WAIT_S = 60.0
TOPIC, GROUP, TIMELINE = "orders", "mailer", "reminders"
LATER = 4_000_000_000.0
NO_LIST_OF_KAFKA = ("assignor", "members", "topics", "topic_count", "lag", "lag_s", "coordinator")
NOT_ASKED = (
    *("records", "bytes", "storage", "records_in", "bytes_in", "bytes_out", "cleanup_policy"),
    *("under_min_isr", "problems"),
)
"""What only leaders of topics know."""


@pytest.fixture(scope="module")
def used(cli_broker: Broker) -> Iterator[Broker]:
    """A broker with a topic, a group with a member and lag, and a timeline."""
    client = {"bootstrap.servers": cli_broker.bootstrap_servers}
    admin = AdminClient(client)
    for topic in (TOPIC, "rare"):
        admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})])[topic].result(WAIT_S)
    cli = {"group.id": GROUP, "client.id": "the-member", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    reader = Consumer({**client, **cli})
    reader.subscribe([TOPIC])
    while not reader.assignment():
        reader.poll(0.1)
    with Timeline(cli_broker.grpc, TIMELINE) as timeline:
        timeline.create(lease_ms=60_000)
        timeline.schedule([Message(b"v", time.time(), id="due"), Message(b"tea", LATER, id="later", key=b"user-7")])
        timeline.alter(dead_letter="topic:dead")
        work = timeline.work(consumer_id="w", idle_ms=60_000)
        next(work)
        yield cli_broker
    reader.close()


def documents(broker: Broker, tidemill: CommandLine, command: str, path: str) -> tuple[Any, Any]:
    """What a command prints, and what the API sends."""
    printed = tidemill.fine(*command.split(), "--json").json()
    return printed, httpx.get(f"{broker.http}/api/v1/{path}", timeout=WAIT_S).raise_for_status().json()


def test_the_comparison_finds_what_differs() -> None:
    sent = {"a": 1, "b": [{"c": 2.0}], "d": 3}
    assert differences({"a": 1, "b": [{"c": 2.0}], "d": None}, sent, ["d"]) == []
    assert differences({"a": 2, "b": [{"c": 2.0}], "d": 3}, sent) == [".a: 2 and 1"]
    assert differences({"a": 1, "b": [], "d": 3}, sent) == [".b: [] and [{'c': 2.0}]"]
    assert differences({"a": 1, "b": [{"x": 2.0}], "d": 3}, sent) != []
    assert differences(sent, sent, ["d"]) == [".d is 3, but the command cannot know it"]


def test_topics(used: Broker, tidemill: CommandLine) -> None:
    printed, sent = documents(used, tidemill, "topic list --internal", "topics?internal=true")
    assert TOPIC in [each["topic"] for each in sent["topics"]]
    assert differences(printed, sent, NOT_ASKED) == []
    printed, sent = documents(used, tidemill, "topic list", "topics")
    assert differences(printed, sent, NOT_ASKED) == []


def test_a_topic(used: Broker, tidemill: CommandLine) -> None:
    tidemill.fine("produce", TOPIC, "--partition", "1", "-m", "a", "-m", "b")
    printed, sent = documents(used, tidemill, f"topic describe {TOPIC}", f"topics/{TOPIC}")
    assert sent["config"] == {"retention.ms": "3600000"}
    assert [each["records"] for each in sent["partitions"]] == [0, 2]
    assert differences(printed, sent, ["leader_epoch"]) == []


def test_groups(used: Broker, tidemill: CommandLine) -> None:
    printed, sent = documents(used, tidemill, "group list", "groups")
    assert GROUP in [each["group"] for each in sent["groups"]]
    assert differences(printed, sent, NO_LIST_OF_KAFKA) == []


def test_a_group(used: Broker, tidemill: CommandLine) -> None:
    tidemill.fine("produce", TOPIC, "--partition", "0", "-m", "a", "-m", "b", "-m", "c")
    reader = Consumer({"bootstrap.servers": used.bootstrap_servers, "group.id": "alone"})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    reader.close()
    unknown = ("epoch", "target_epoch", "committed_ms", "leader_epoch", "is_unstable", "rack", "is_leader")
    printed, sent = documents(used, tidemill, "group describe alone", "groups/alone")
    assert (sent["lag"], sent["partitions"][0]["committed"]) == (2, 1)
    assert differences(printed, sent, unknown) == []
    printed, sent = documents(used, tidemill, f"group describe {GROUP}", f"groups/{GROUP}")
    assert [each["client"] for each in sent["members"]] == ["the-member"]
    assert [member.pop("topics") for member in printed["members"]] == [None]
    assert [member.pop("topics") for member in sent["members"]] == [[TOPIC]]
    assert differences(printed, sent, unknown) == []


def test_the_cluster(used: Broker, tidemill: CommandLine) -> None:
    printed, sent = documents(used, tidemill, "cluster status", "cluster")
    assert differences(printed, sent, ["under_min_isr", "report"]) == []


def test_timelines(used: Broker, tidemill: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", used.grpc)
    printed, sent = documents(used, tidemill, "timeline list", "timelines")
    assert [each["timeline"] for each in sent["timelines"]] == [TIMELINE]
    assert differences(printed, sent, ["broker", "waiting", "available", "leased"]) == []


def test_a_timeline(used: Broker, tidemill: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", used.grpc)
    printed, sent = documents(used, tidemill, f"timeline describe {TIMELINE}", f"timelines/{TIMELINE}")
    assert (sent["waiting"], sent["available"], sent["leased"]) == (1, 0, 1)
    assert sent["dead_letters"]["topic"] == "dead"
    for each in ("dead_letters_of", "totals", "health_reasons", "brokers", "unreachable_brokers"):
        assert not printed.pop(each), each
        del sent[each]
    printed.pop("now_ms")
    sent.pop("now_ms")
    unknown = ("broker", "late", "first_due_ms", "last_due_ms", "members", "messages", "health")
    assert differences(printed, sent, unknown) == []


def test_messages(used: Broker, tidemill: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", used.grpc)
    printed, sent = documents(used, tidemill, f"timeline list {TIMELINE}", f"timelines/{TIMELINE}/messages")
    assert [each["status"] for each in sent["messages"]] == ["leased", "waiting"]
    assert [each["body"] for each in printed["messages"]] == ["v", "tea"]
    for each in printed["messages"]:  # the command prints whole messages
        whole = httpx.get(f"{used.http}/api/v1/timelines/{TIMELINE}/messages/{each['id']}", timeout=WAIT_S).json()
        assert differences({**each, "now_ms": 0}, {**whole, "now_ms": 0}, ["broker"]) == []
    columns = sent["messages"][0].keys()
    rows = [{name: value for name, value in each.items() if name in columns} for each in printed["messages"]]
    assert differences({**printed, "messages": rows, "now_ms": 0}, {**sent, "now_ms": 0}) == []
    limited, sent = documents(used, tidemill, f"timeline list {TIMELINE} -n 1", f"timelines/{TIMELINE}/messages?rows=1")
    assert limited["next"] == sent["next"]


def test_the_future_of_a_timeline(used: Broker, tidemill: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", used.grpc)
    command = f"timeline histogram {TIMELINE} --from 2096-10-02T07:06:00Z --to 2096-10-02T07:07:01Z -n 7"
    start_ms = 4_000_000_000_000 - 40_000
    path = f"timelines/{TIMELINE}/future?from_ms={start_ms}&to_ms={start_ms + 61_000}&bars=7"
    printed, sent = documents(used, tidemill, command, path)
    assert sent["total"] == 1
    apart = {"now_ms": 0, "bar_max": 0}
    assert differences({**printed, **apart}, {**sent, **apart}) == []
