"""Consumers of timelines in coordination: written, found again after whatever was lost, and never fought for."""

import asyncio
from pathlib import Path

from tests.support.broker_worlds import running
from tests.support.waiting import eventually_async

from tidemill.broker.broker import BrokerNode
from tidemill.cluster.core.consumer_registry import (
    RegisteredConsumer,
    consumer_key,
    deal_key,
    decode_consumer,
    encode_consumer,
    parse_consumer_key,
)
from tidemill.timelines.core.dealer import DealtConsumer


def here(broker: BrokerNode) -> dict[str, bool]:
    return {seat.member.id: seat.here for seat in broker.consumer_registry.places("line")}


def test_keys_and_values_are_read_as_they_were_written() -> None:
    attendee = RegisteredConsumer("a/b c", "rack", 3, 77)
    assert parse_consumer_key(consumer_key("line", attendee.id)) == ("line", "a/b c")
    assert decode_consumer("a/b c", encode_consumer(attendee)) == attendee


async def test_a_consumer_is_registered_from_its_connection_to_its_end(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        reported: list[str] = []
        broker.consumer_registry.listen(reported.extend)
        for name in ("a", "b"):
            broker.consumer_registry.enter("line", DealtConsumer(name, "r"))
        await eventually_async(lambda: here(broker) == {"a": True, "b": True})
        broker.consumer_registry.leave("line", "a")
        await eventually_async(lambda: here(broker) == {"b": True})
        assert set(reported) == {"line"}
        assert not broker.consumer_registry.displaced("line")


async def test_a_key_that_is_lost_is_written_again(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        broker.consumer_registry.enter("line", DealtConsumer("a", "r"))
        await eventually_async(lambda: here(broker) == {"a": True})
        coordination, key = broker.environment.coordination, consumer_key("line", "a")
        entry = await coordination.get(key)
        assert entry is not None
        assert await coordination.compare_and_put(key, None, entry.revision)  # as with the end of a session
        await eventually_async(lambda: broker.metadata.view.revision_of(key) > entry.revision)
        assert here(broker) == {"a": True}


async def test_an_id_that_connects_to_another_broker_is_given_up_and_one_that_returns_takes_its_place(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, memory=True) as broker:
        broker.consumer_registry.enter("line", DealtConsumer("a", "r"))
        await eventually_async(lambda: here(broker) == {"a": True})
        coordination, key = broker.environment.coordination, consumer_key("line", "a")
        entry = await coordination.get(key)
        assert entry is not None
        since_ms = decode_consumer("a", entry.value).since_ms
        other = encode_consumer(RegisteredConsumer("a", "r", 9, since_ms))
        assert await coordination.compare_and_put(key, other, entry.revision)
        await eventually_async(lambda: broker.consumer_registry.displaced("line") == ["a"])
        await asyncio.sleep(0.1)
        assert here(broker) == {"a": False}, "it was fought for"
        broker.consumer_registry.leave("line", "a")
        broker.consumer_registry.enter("line", DealtConsumer("a", "r"))
        await eventually_async(lambda: here(broker) == {"a": True})
        assert [seat.since_ms for seat in broker.consumer_registry.places("line")] == [since_ms]


async def test_the_deal_is_recorded_once_and_by_the_first_broker(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        registry, coordination = broker.consumer_registry, broker.environment.coordination
        reported: list[str] = []
        registry.listen(reported.extend)
        registry.publish_deal("line", b"first")
        await eventually_async(lambda: registry.deal("line") == b"first")
        assert set(reported) == {"line"}
        seen = broker.metadata.view.revision_of(deal_key("line"))
        registry.publish_deal("line", b"late")
        assert await coordination.compare_and_put(deal_key("line"), b"of another broker", seen)
        await eventually_async(lambda: registry.deal("line") == b"of another broker")
        await asyncio.sleep(0.1)
        assert registry.deal("line") == b"of another broker"
        registry.publish_deal("line", None)
        await eventually_async(lambda: registry.deal("line") is None)
        assert await coordination.get(deal_key("line")) is None
