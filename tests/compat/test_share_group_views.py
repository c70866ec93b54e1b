"""What an operator sees of share groups that librdkafka's share consumers use: metrics."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import AcknowledgeType, Message
from prometheus_client import parser
from tests.compat.test_share_groups import SETTINGS, WAIT_S, configure, consumer, explicit, polled, produce
from tests.support.group_members import create_topic
from tests.support.waiting import eventually

from tidemill.testing import Broker

RECORDS = 20
Series = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={**SETTINGS, "group.share.record.lock.duration.ms": "15000"}, process=True) as broker:
        yield broker


def series(broker: Broker, group: str) -> Series:
    """The metrics of a group: the name and the label after group and topic."""
    text = httpx.get(f"{broker.http}/metrics", timeout=WAIT_S).text
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name not in {"cluster", "group", "topic"})): (
            sample.value
        )
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("group") == group
    }


def test_metrics_follow_a_group_through_deliveries_and_a_restart(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "seen", 1)
    configure(broker.bootstrap_servers, "watchers")
    produce(broker.bootstrap_servers, "seen", RECORDS)
    member = consumer(broker.bootstrap_servers, "watchers", "seen", **explicit())
    taken: list[Message] = []
    for _, message in polled([member], lambda: len(taken) == RECORDS):
        taken.append(message)
    found = series(broker, "watchers")
    assert found["tidemill_share_records", "acquired"] == RECORDS
    assert found["tidemill_share_lag_records",] == RECORDS
    assert 0 < found["tidemill_share_oldest_lock_seconds",] < WAIT_S
    assert found["tidemill_group_members",] == 1
    assert found["tidemill_share_deliveries_total", "1"] == RECORDS
    kinds = [AcknowledgeType.REJECT] * 3 + [AcknowledgeType.ACCEPT] * (RECORDS - 3)
    for message, kind in zip(taken, kinds, strict=True):
        member.acknowledge(message, kind)
    member.commit_sync(WAIT_S)
    done = series(broker, "watchers")
    assert done["tidemill_share_lag_records",] == 0
    assert done["tidemill_share_records", "acquired"] == 0
    assert done["tidemill_share_oldest_lock_seconds",] == 0
    assert done["tidemill_share_archived_records_total",] == 3
    assert done["tidemill_share_delivery_results_total", "accepted"] == RECORDS - 3
    member.close()
    produce(broker.bootstrap_servers, "seen", 7)
    eventually(lambda: series(broker, "watchers").get(("tidemill_group_members",)) == 0, "the member has left")
    assert series(broker, "watchers")["tidemill_share_lag_records",] == 7
    broker.kill()
    broker.restart()
    eventually(
        lambda: series(broker, "watchers").get(("tidemill_share_lag_records",)) == 7, "the lag is known after a restart"
    )
