"""A wrong clock deletes nothing: the clock of a broker's process jumps, or was wrong before it started."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.health import health
from tests.support.command_line import CommandLine
from tests.support.system_clock import SystemClock, system_clock
from tests.support.waiting import eventually

from tidemill.testing import Broker

__all__ = ["system_clock"]

LIMIT_S = 60.0
QUICK = {
    "tidemill.tend.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}
DAYS_30 = "+30d"
RECORDS = 20


def produce(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("orders", str(number))
    assert producer.flush(LIMIT_S) == 0


def first_offset(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=LIMIT_S)
        return int(low)
    finally:
        consumer.close()


def in_doubt(broker: Broker) -> bool:
    return bool(health(broker)["clock"]["state"] == "in doubt")


def nothing_is_deleted(broker: Broker) -> None:
    time.sleep(1.0)  # ten rounds of retention
    assert first_offset(broker) == 0


@pytest.mark.parametrize("jump", [DAYS_30, "-30d"])
def test_a_jump_deletes_nothing_until_it_is_accepted(
    jump: str, system_clock: SystemClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(process=True, settings=QUICK) as broker:
        monkeypatch.delenv("LD_PRELOAD")
        produce(broker)
        assert health(broker)["state"] == "healthy"
        system_clock.jump(jump)
        eventually(lambda: in_doubt(broker))
        found = health(broker)
        assert found["state"] == "degraded"
        assert "the wall clock jumped by" in found["clock"]["reasons"][0]["text"]
        nothing_is_deleted(broker)
        tidemill = CommandLine(broker.bootstrap_servers, capsys, monkeypatch)
        [shown] = tidemill("cluster", "clock", "--json").json()
        assert shown["state"] == "in doubt"
        assert "jumped by" in tidemill("cluster", "clock").out
        accepted = tidemill("cluster", "clock", "accept", "--yes")
        assert accepted.code == 0
        assert "retention.ms" in accepted.out
        assert "accepted the clock of broker 0" in accepted.out
        assert not in_doubt(broker)
        assert health(broker)["clock"]["accepted_by"] == "operator"
        if jump == DAYS_30:
            eventually(lambda: first_offset(broker) == RECORDS)
        assert "nothing to accept" in tidemill("cluster", "clock", "accept", "--yes").out


@pytest.mark.parametrize(("jump", "rebooted", "kind"), [(DAYS_30, False, "jump"), (DAYS_30, True, "later")])
def test_a_start_with_a_wrong_clock_deletes_nothing(
    jump: str, rebooted: bool, kind: str, tmp_path: Path, system_clock: SystemClock
) -> None:
    data = tmp_path / "data"
    with Broker(process=True, settings=QUICK, flags={"data-dir": str(data)}) as broker:
        produce(broker)
    if rebooted:
        record = json.loads((data / "clock.json").read_text())
        (data / "clock.json").write_text(json.dumps({**record, "boot_id": "the boot before"}))
    system_clock.jump(jump)
    with Broker(process=True, settings=QUICK, flags={"data-dir": str(data)}) as broker:
        found = health(broker)
        assert found["state"] == "degraded"
        assert [one["kind"] for one in found["clock"]["reasons"]] == [kind]
        nothing_is_deleted(broker)
        system_clock.jump("+0")
        eventually(lambda: not in_doubt(broker))


def test_a_restart_after_a_short_stop_is_trusted_at_once(tmp_path: Path) -> None:
    flags = {"data-dir": str(tmp_path / "data")}
    with Broker(flags=flags) as broker:
        produce(broker)
    with Broker(flags=flags) as broker:
        assert health(broker)["state"] == "healthy"
        assert health(broker)["clock"]["reasons"] == []
    with Broker(flags=flags) as broker:
        broker.advance(3600)  # time that a test lets pass is no jump
        assert health(broker)["clock"]["state"] == "trusted"
