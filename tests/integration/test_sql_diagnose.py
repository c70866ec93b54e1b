"""`tidemill sql --diagnose` on a real broker, with its records in files and in tables."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.cli.main import main
from tidemill.sql.core.diagnostics import DIAGNOSES
from tidemill.testing import Broker

WAIT_S = 60.0
HOUR_MS = 3_600_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class World:
    def __init__(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["sql", "--http", self.broker.http.removeprefix("http://"), *words])
        return (code, *self._capsys.readouterr())

    def found(self, name: str, *words: str) -> list[dict[str, Any]]:
        code, out, err = self.run("--diagnose", name, "--json", *words)
        assert code == 0, err
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    def create(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(WAIT_S)

    def send(self, topic: str, counts: dict[int, int], *, age_ms: int = 0, size: int = 10) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 20})
        at_ms = int(time.time() * 1000) - age_ms
        for partition, count in counts.items():
            for _ in range(count):
                producer.produce(topic, b"x" * size, partition=partition, timestamp=at_ms)
        assert producer.flush(WAIT_S) == 0

    def read_one(self, topic: str, group: str, protocol: str = "classic") -> None:
        """Join, commit one record and leave."""
        reader = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": "me",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        reader.subscribe([topic])
        try:
            end = time.monotonic() + WAIT_S
            while time.monotonic() < end:
                message = reader.poll(0.2)
                if message is not None and message.error() is None:
                    reader.commit(message, asynchronous=False)
                    return
            raise AssertionError("nothing was read")
        finally:
            reader.close()


@pytest.fixture(scope="module", params=["segments:", "chdb:?fsync=false"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(process=True, flags={"streams": request.param}, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def world(broker: Broker, capsys: pytest.CaptureFixture[str]) -> World:
    return World(broker, capsys)


def test_a_healthy_broker_has_no_problems(world: World) -> None:
    world.create("healthy")
    world.send("healthy", {0: 1_100, 1: 1_100, 2: 1_100}, size=400)
    world.send("healthy", {0: 1})
    world.read_one("healthy", "reader")
    for name in DIAGNOSES:
        assert world.found(name) == [], name
    code, out, err = world.run("--diagnose", "skew")
    assert (code, out, err) == (0, "", "skew: no problem found\n")


def test_old_unread_records_are_found(world: World) -> None:
    world.create("slow")
    world.send("slow", {1: 5}, age_ms=HOUR_MS)
    world.read_one("slow", "behind")
    [row] = [each for each in world.found("lag") if each["topic"] == "slow"]
    assert (row["group_id"], row["partition"], row["lag"]) == ("behind", 1, 4)
    assert row["lag_seconds"] >= 3_600
    assert [each for each in world.found("lag", "--minutes", "90") if each["topic"] == "slow"] == []
    # The group committed a moment ago, so it is stuck only for a user to whom a moment is long.
    assert world.found("stuck") == []
    [row] = [each for each in world.found("stuck", "--minutes", "0") if each["topic"] == "slow"]
    assert (row["group_id"], row["partition"], row["lag"], row["state"], row["members"]) == ("behind", 1, 4, "Empty", 0)
    code, out, err = world.run("--diagnose", "lag")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["GROUP_ID", "TOPIC", "PARTITION"]
    assert err.startswith("next step: ")


def test_skew_and_a_hot_partition_are_found(world: World) -> None:
    world.create("skewed")
    world.send("skewed", {0: 10, 1: 1_500, 2: 20}, size=1_000)
    [row] = world.found("skew")
    assert (row["topic"], row["partitions"], row["largest_partition"]) == ("skewed", 3, 1)
    [row] = world.found("hot-partitions")
    assert (row["topic"], row["hottest_partition"], row["records"], row["others_average"]) == ("skewed", 1, 1_500, 15)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_rebalances_again_and_again_is_found(world: World, protocol: str) -> None:
    topic = f"restless.{protocol}"
    world.create(topic)
    world.send(topic, {0: 9})
    for _ in range(3):
        world.read_one(topic, topic, protocol)
    [row] = [each for each in world.found("rebalances") if each["group_id"] == topic]
    assert (row["kind"], row["state"], row["members"]) == (protocol, "Empty", 0)
    assert row["recent_rebalances"] >= 5
    asked = f"SELECT member_id != '', client_id, client_host FROM consumer_offsets WHERE group_id = '{topic}'"
    code, out, _ = world.run(asked, "--json")
    [committer] = json.loads(out)
    assert (code, list(committer.values())) == (0, [1, "me", "/127.0.0.1"])


def test_names_and_queries_are_shown(world: World) -> None:
    code, out, _ = world.run("--diagnose")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(DIAGNOSES)
    code, out, _ = world.run("--diagnose", "stuck", "--minutes", "30", "--show")
    assert code == 0
    assert "INTERVAL 30 MINUTE" in out
    assert world.run(out, "--json")[:2] == (0, "[]\n"), "the query that is shown can be run"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--diagnose", "nonsense"], "use one of lag, stuck, skew, hot-partitions, rebalances"),
        (["--diagnose", "lag", "--minutes", "-1"], "--minutes must be from 0 to 100,000, not -1"),
        (["--diagnose", "skew", "--minutes", "1"], "--minutes does not apply to skew"),
        (["--diagnose", "--show"], "--show and --minutes need --diagnose NAME"),
        (["SELECT 1", "--minutes", "1"], "--show and --minutes need --diagnose NAME"),
    ],
)
def test_wrong_use_is_explained(world: World, words: list[str], said: str) -> None:
    code, out, err = world.run(*words)
    assert (code, out) == (2, "")
    assert said in err
