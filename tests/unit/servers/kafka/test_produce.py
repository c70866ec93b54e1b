"""Produce through the Kafka server."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.kafka_server import RawClient, batch, produce_fields, request_part, running_kafka_server

from tidemill.streams.memory import MemoryLog

pytestmark = pytest.mark.event_loop("uvloop")
PRODUCE = range(3, 14)


@pytest.mark.parametrize("acks", [-1, 1])
async def test_produce_in_every_version(tmp_path: Path, acks: int) -> None:
    async with running_kafka_server(tmp_path) as server:
        topic = await server.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(server)
        for count, version in enumerate(PRODUCE):
            key = topic.topic_id if version >= 13 else "t"
            answer = await client.ask(0, version, **produce_fields(version, key, 1, batch(b"a", b"b"), acks))
            outcome = answer.responses[0].partition_responses[0]
            assert (outcome.index, outcome.error_code, outcome.base_offset) == (1, 0, 2 * count)
        assert server.broker.metrics.topic("t").records_in == 2 * len(PRODUCE)
        await client.close()


async def test_produce_rejects_invalid_requests(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        await server.broker.topics.create("keys", overrides={"cleanup.policy": "compact"})
        client = await RawClient.connect(server)
        good = batch(b"v")
        damaged = good[:-1] + bytes([good[-1] ^ 1])
        cases: list[tuple[str, int, bytes | None, int, int]] = [
            ("t", 0, good, 5, 21),
            ("missing", 0, good, -1, 3),
            ("t", 1, good, -1, 3),
            ("t", -1, good, -1, 3),
            ("t", 0, None, -1, 87),
            ("t", 0, b"", -1, 87),
            ("t", 0, good * 2, -1, 87),
            ("t", 0, damaged, -1, 2),
            ("t", 0, batch(b"x" * 2_000_000), -1, 10),
            ("keys", 0, batch(b"v", key=None), -1, 87),
        ]
        for topic, partition, records, acks, code in cases:
            answer = await client.ask(0, 9, **produce_fields(9, topic, partition, records, acks))
            outcome = answer.responses[0].partition_responses[0]
            assert outcome.error_code == code, (topic, partition, acks)
            assert outcome.base_offset == -1
            assert outcome.error_message
        assert [error.batch_index for error in outcome.record_errors] == [0]
        answer = await client.ask(0, 13, **produce_fields(13, uuid4(), 0, good))
        assert answer.responses[0].partition_responses[0].error_code == 100
        assert server.broker.view.partition("t", 0).log_end_offset == 0
        await client.close()


async def test_acks_all_is_not_awaited_longer_than_the_producer_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records stay: a producer that sends them again gets their offset."""
    disk_works = asyncio.Event()

    async def flush(_: MemoryLog) -> None:
        await disk_works.wait()

    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        monkeypatch.setattr(MemoryLog, "flush", flush)
        sent = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        for code, offset in ((7, -1), (7, -1), (0, 0)):
            fields = produce_fields(9, "t", 0, sent) | {"timeout": timedelta(milliseconds=code)}
            if code == 0:
                disk_works.set()
                fields = produce_fields(9, "t", 0, sent)
            answer = await client.ask(0, 9, **fields)
            outcome = answer.responses[0].partition_responses[0]
            assert (outcome.error_code, outcome.base_offset) == (code, offset)
        assert server.broker.view.partition("t", 0).log_end_offset == 1
        await client.close()


async def test_many_partitions_in_one_request(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("a", partitions=3)
        await server.broker.topics.create("b", partitions=1)
        client = await RawClient.connect(server)

        def topic(name: str, count: int) -> Any:
            parts = tuple(
                request_part(0, 9, "PartitionProduceData", index=index, records=batch(b"v")) for index in range(count)
            )
            return request_part(0, 9, "TopicProduceData", name=name, partition_data=parts)

        for round_number in range(3):
            fields = produce_fields(9, "a", 0, None) | {"topic_data": (topic("a", 3), topic("b", 2))}
            answer = await client.ask(0, 9, **fields)
            found = [
                (entry.name, part.index, part.error_code, part.base_offset)
                for entry in answer.responses
                for part in entry.partition_responses
            ]
            assert found == [
                ("a", 0, 0, round_number),
                ("a", 1, 0, round_number),
                ("a", 2, 0, round_number),
                ("b", 0, 0, round_number),
                ("b", 1, 3, -1),
            ]
        await client.close()


async def test_pipelined_batches_keep_their_order_whatever_their_size(tmp_path: Path) -> None:
    """An idempotent producer sends many batches without waiting: out of order, the log would refuse them."""
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(server)
        sizes = [10, 400_000, 10, 10, 300_000, 700_000, 10] * 5
        sent = []
        for sequence, size in enumerate(sizes):
            options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            fields = produce_fields(9, "t", 0, batch(b"x" * size, **options))
            if sequence % 3 == 0:  # next to it a batch for another partition
                entry = fields["topic_data"][0]
                other = request_part(0, 9, "PartitionProduceData", index=1, records=batch(b"y"))
                parts = (other, *entry.partition_data)
                fields["topic_data"] = (request_part(0, 9, "TopicProduceData", name="t", partition_data=parts),)
            sent.append(client.send(0, 9, **fields))
        for sequence, correlation in enumerate(sent):
            answer = await client.answer(0, 9, correlation)
            outcome = answer.responses[0].partition_responses[-1]
            assert (outcome.error_code, outcome.base_offset) == (0, sequence)
        await client.close()
