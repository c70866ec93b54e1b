"""Groups through the two clients that are written in Python: aiokafka and kafka-python."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.group_members import WAIT_S, create_topic, produce, quick_groups
from tests.support.waiting import eventually_async

from tidemill.testing import Broker

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=quick_groups()) as broker:
        yield broker


class TestAiokafka:
    def consumer(self, broker: Broker, topic: str, **config: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            **config,
        )

    async def test_two_share_and_one_takes_over(self, broker: Broker) -> None:
        topic = "aiokafka.share"
        create_topic(broker.bootstrap_servers, topic, PARTITIONS)
        produce(broker.bootstrap_servers, topic, PARTITIONS, 10)

        async def scene() -> None:
            first, second = self.consumer(broker, topic), self.consumer(broker, topic)
            await first.start()
            try:
                await eventually_async(lambda: len(first.assignment()) == PARTITIONS, "the first has all")
                seen = 0
                while seen < PARTITIONS * 10:
                    seen += sum(map(len, (await first.getmany(timeout_ms=500)).values()))
                await first.commit()
                await second.start()
                await eventually_async(
                    lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, "both have half"
                )
                assert not first.assignment() & second.assignment()
                assert await second.committed(next(iter(second.assignment()))) == 10
                await second.stop()
                await eventually_async(lambda: len(first.assignment()) == PARTITIONS, "the first has all again")
            finally:
                await second.stop()
                await first.stop()

        await asyncio.wait_for(scene(), WAIT_S * 2)

    async def test_a_static_member_comes_back(self, broker: Broker) -> None:
        topic = "aiokafka.static"
        create_topic(broker.bootstrap_servers, topic, PARTITIONS)

        async def scene() -> None:
            for _ in range(2):
                consumer = self.consumer(broker, topic, group_instance_id="one")
                await consumer.start()
                try:
                    await eventually_async(lambda: len(consumer.assignment()) == PARTITIONS, "it has all")  # noqa: B023 - awaited here
                finally:
                    await consumer.stop()

        await asyncio.wait_for(scene(), WAIT_S * 2)


POLL_MS = 1_000
"""A join that a poll of kafka-python gives up half way leaves a member behind that others wait for."""


class TestKafkaPython:
    def consumer(self, broker: Broker, topic: str) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )

    def test_two_share_and_one_takes_over(self, broker: Broker) -> None:
        topic = "kafka.python.share"
        create_topic(broker.bootstrap_servers, topic, PARTITIONS)
        produce(broker.bootstrap_servers, topic, PARTITIONS, 10)
        first = self.consumer(broker, topic)
        try:
            seen: set[tuple[int, int]] = set()
            end = time.monotonic() + WAIT_S
            while len(seen) < PARTITIONS * 10:
                assert time.monotonic() < end, f"{len(seen)} records seen"
                for records in first.poll(timeout_ms=POLL_MS).values():
                    seen.update((record.partition, record.offset) for record in records)
            first.commit()
            self.share_with_a_second(broker, topic, first)
        finally:
            first.close()

    def share_with_a_second(self, broker: Broker, topic: str, first: Any) -> None:
        """The second lives in a thread of its own: a member that joins blocks until the other one joins, too."""
        found: list[tuple[int, list[int | None]]] = []
        enough = threading.Event()

        def second() -> None:
            consumer = self.consumer(broker, topic)
            try:
                while not enough.is_set():
                    consumer.poll(timeout_ms=POLL_MS)
                    mine = consumer.assignment()
                    if len(mine) == PARTITIONS // 2 and not found:
                        found.append((len(mine), [consumer.committed(each) for each in mine]))
            finally:
                consumer.close()

        thread = threading.Thread(target=second)
        thread.start()
        try:
            end = time.monotonic() + WAIT_S
            while not found:
                assert time.monotonic() < end, "the second has no half"
                first.poll(timeout_ms=POLL_MS)
        finally:
            enough.set()
            end = time.monotonic() + WAIT_S
            while thread.is_alive() and time.monotonic() < end:
                first.poll(timeout_ms=POLL_MS)
            thread.join(WAIT_S)
        assert found == [(PARTITIONS // 2, [10] * (PARTITIONS // 2))]
        end = time.monotonic() + WAIT_S
        while len(first.assignment()) < PARTITIONS:
            assert time.monotonic() < end, "the first does not take over"
            first.poll(timeout_ms=POLL_MS)
