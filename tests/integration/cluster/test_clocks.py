"""Brokers compare their clocks with each other and with etcd: the one that is apart is in doubt."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.system_clock import SystemClock, system_clock
from tests.support.waiting import eventually

__all__ = ["system_clock"]

WAIT_S = 60.0


def clock_of(brokers: Brokers, number: int) -> dict[str, Any]:
    client = AdminClient({"bootstrap.servers": brokers.address(number)})
    resource = ConfigResource(ResourceType.BROKER, str(number))
    entries = client.describe_configs([resource])[resource].result(WAIT_S)
    found: dict[str, Any] = json.loads(entries["tidemill.clock"].value)
    return found


def kinds(brokers: Brokers, number: int) -> set[str]:
    return {one["kind"] for one in clock_of(brokers, number)["reasons"]}


def test_the_broker_with_the_wrong_clock_is_in_doubt(
    system_clock: SystemClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert tmp_path
    with monkeypatch.context() as patch:
        patch.delenv("LD_PRELOAD")
        running = running_brokers(3)
        brokers = running.__enter__()
    try:
        eventually(
            lambda: {one["kind"] for one in clock_of(brokers, 1)["differences"]} == {"brokers", "coordination"},
            "the clocks are compared",
        )
        assert {clock_of(brokers, number)["state"] for number in (1, 2, 3)} == {"trusted"}
        brokers.stop(3)
        system_clock.jump("+1h")
        brokers.start(3)
        eventually(lambda: kinds(brokers, 3) == {"jump", "brokers", "coordination"}, "broker 3 is in doubt")
        assert clock_of(brokers, 3)["accepted_in_ms"] is None, "others disagree: time alone does not end it"
        assert not kinds(brokers, 1)
        assert not kinds(brokers, 2)
    finally:
        running.__exit__(None, None, None)
