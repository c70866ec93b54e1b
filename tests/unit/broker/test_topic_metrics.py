"""The traffic of topics: bounded in topics and in errors."""

from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.broker_worlds import running

from tidemill.broker import topic_metrics
from tidemill.broker.metrics import FETCH, OTHER_TOPICS, PRODUCE, BrokerMetrics
from tidemill.broker.topic_metrics import topic_readings
from tidemill.model.errors import CorruptMessage, OffsetOutOfRange
from tidemill.model.metrics import CounterReading


async def errors(metrics: BrokerMetrics) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in each.labels): each.value
        for each in await topic_readings(metrics)(False)
        if isinstance(each, CounterReading) and each.name == "tidemill_topic_errors"
    }


async def test_errors_are_counted_only_at_topics_that_exist(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        topic = await broker.topics.create("orders")
        broker.note_topic_error("orders", PRODUCE, CorruptMessage)
        broker.note_topic_error(topic.topic_id, FETCH, OffsetOutOfRange)
        broker.note_topic_error("invented", PRODUCE, CorruptMessage)
        broker.note_topic_error(uuid4(), FETCH, CorruptMessage)
        assert await errors(broker.metrics) == {
            ("orders", "produce", "CorruptMessage"): 1,
            ("orders", "fetch", "OffsetOutOfRange"): 1,
        }
        assert set(broker.metrics.topics) == {"orders"}


async def test_the_lines_of_errors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_metrics, "ERRORS_MAX", 3)
    metrics = BrokerMetrics()
    for number in range(10):
        metrics.topic(f"t{number}").failed(PRODUCE, "CorruptMessage")
        metrics.topic(f"t{number}").failed(PRODUCE, "CorruptMessage")
    found = await errors(metrics)
    assert len(found) == 4
    assert found[OTHER_TOPICS, "produce", "CorruptMessage"] == 14
    assert found["t0", "produce", "CorruptMessage"] == 2
