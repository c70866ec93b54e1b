"""Produce and Fetch through the door."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import RawClient, batch, fetch_fields, kafka_door, produce_fields, request_part

from tidemill.records.compression import Codec
from tidemill.servers.kafka.listener import OWED_BYTES_MAX
from tidemill.streams.memory import MemoryLog

pytestmark = pytest.mark.event_loop("uvloop")

PRODUCE = range(3, 14)
FETCH = range(4, 18)


async def put(client: RawClient, topic: str, *values: bytes, partition: int = 0, **options: Any) -> Any:
    answer = await client.ask(0, 9, **produce_fields(9, topic, partition, batch(*values, **options)))
    return answer.responses[0].partition_responses[0]


def only(answer: Any) -> Any:
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("acks", [-1, 1])
async def test_produce_in_every_version(tmp_path: Path, acks: int) -> None:
    async with kafka_door(tmp_path) as door:
        topic = await door.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(door)
        for count, version in enumerate(PRODUCE):
            key = topic.topic_id if version >= 13 else "t"
            answer = await client.ask(0, version, **produce_fields(version, key, 1, batch(b"a", b"b"), acks))
            outcome = answer.responses[0].partition_responses[0]
            assert (outcome.index, outcome.error_code, outcome.base_offset) == (1, 0, 2 * count)
        assert door.broker.metrics.topic("t").records_in == 2 * len(PRODUCE)
        await client.close()


async def test_what_produce_refuses(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        await door.broker.topics.create("keys", overrides={"cleanup.policy": "compact"})
        client = await RawClient.connect(door)
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
        assert door.broker.view.partition("t", 0).log_end_offset == 0
        await client.close()


async def test_acks_all_is_not_awaited_longer_than_the_producer_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records stay: a producer that sends them again is told where they are."""
    disk_works = asyncio.Event()

    async def flush(_: MemoryLog) -> None:
        await disk_works.wait()

    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        client = await RawClient.connect(door)
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
        assert door.broker.view.partition("t", 0).log_end_offset == 1
        await client.close()


async def test_many_partitions_in_one_request(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("a", partitions=3)
        await door.broker.topics.create("b", partitions=1)
        client = await RawClient.connect(door)

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
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(door)
        sizes = [10, 400_000, 10, 10, 300_000, 700_000, 10] * 5
        sent = []
        for sequence, size in enumerate(sizes):
            options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            fields = produce_fields(9, "t", 0, batch(b"x" * size, **options))
            if sequence % 3 == 0:  # beside it a batch for another partition
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


async def test_fetch_in_every_version(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        topic = await door.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(door)
        records = batch(b"a", b"b")
        await client.ask(0, 9, **produce_fields(9, "t", 1, records))
        for version in FETCH:
            key: Any = topic.topic_id if version >= 13 else "t"
            found = only(await client.ask(1, version, **fetch_fields(version, key, {1: 1})))
            assert (found.partition_index, found.error_code, found.high_watermark) == (1, 0, 2)
            assert found.last_stable_offset == 2
            assert found.aborted_transactions is None
            assert found.records[61:] == records[61:]
            end = only(await client.ask(1, version, **fetch_fields(version, key, {1: 2})))
            assert (end.error_code, end.records) == (0, b"")
        assert door.broker.metrics.topic("t").bytes_out == len(records) * len(FETCH)
        await client.close()


async def test_what_fetch_refuses(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        topic = await door.broker.topics.create("t")
        client = await RawClient.connect(door)
        await put(client, "t", b"v")
        for key, offset, partition, version, code in [
            ("t", 2, 0, 12, 1),
            ("t", -1, 0, 12, 1),
            ("missing", 0, 0, 12, 3),
            ("t", 0, 7, 12, 3),
            (uuid4(), 0, 0, 13, 100),
            (topic.topic_id, 0, 9, 13, 3),
        ]:
            # The wait is long, the answer comes at once.
            fields = fetch_fields(version, key, {partition: offset}, max_wait_ms=100_000)
            found = only(await client.ask(1, version, **fields))
            assert (found.error_code, found.high_watermark, found.records) == (code, -1, b"")
        await client.close()


async def test_nobody_fetches_as_a_replica(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        client = await RawClient.connect(door)
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {0: 0}, replica_id=1))
        assert (answer.error_code, answer.responses) == (31, ())
        state = request_part(1, 17, "ReplicaState", replica_id=1, replica_epoch=-1)
        answer = await client.ask(1, 17, **fetch_fields(17, UUID(int=1), {0: 0}, replica_state=state))
        assert answer.error_code == 31
        await client.close()


async def test_zstd_is_not_given_to_clients_that_cannot_read_it(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        client = await RawClient.connect(door)
        assert (await put(client, "t", b"v" * 100, codec=Codec.ZSTD)).error_code == 0
        assert only(await client.ask(1, 9, **fetch_fields(9, "t", {0: 0}))).error_code == 76
        assert only(await client.ask(1, 10, **fetch_fields(10, "t", {0: 0}))).error_code == 0
        await client.close()


async def test_a_fetch_waits_for_records_and_no_longer(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t", partitions=3)
        reader, writer = await RawClient.connect(door), await RawClient.connect(door)
        fields = fetch_fields(12, "t", {0: 0, 1: 0, 2: 0}, max_wait_ms=100_000)
        for count in range(3):
            waiting = reader.send(1, 12, **fields)
            await asyncio.sleep(0.02)
            assert reader.reader._buffer == b""  # type: ignore[attr-defined]  # nothing has come yet
            await put(writer, "t", b"v", partition=count)
            answer = await reader.answer(1, 12, waiting)
            sizes = [len(part.records) for part in answer.responses[0].partitions]
            assert [index for index, size in enumerate(sizes) if size] == [count]
            fields = fetch_fields(12, "t", {index: int(index <= count) for index in range(3)}, max_wait_ms=100_000)
        empty = await reader.ask(1, 12, **fetch_fields(12, "t", {0: 1}, max_wait_ms=10))
        assert only(empty).records == b""
        await reader.close()
        await writer.close()


async def test_a_wait_always_ends(tmp_path: Path) -> None:
    """Timers may come a fraction early by the clock; a fetch that then waits on would wait for ever."""
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        clients = [await RawClient.connect(door) for _ in range(10)]
        for turn in range(30):
            fields = fetch_fields(12, "t", {0: 0}, max_wait_ms=1 + turn % 7)
            sent = [client.send(1, 12, **fields) for client in clients]
            for client, correlation in zip(clients, sent, strict=True):
                assert only(await client.answer(1, 12, correlation)).records == b""
        assert len(door.broker.view.partition("t", 0)._replica.waiters) == 0
        for client in clients:
            await client.close()


async def test_a_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t", partitions=2)
        reader, writer = await RawClient.connect(door), await RawClient.connect(door)
        size = len(batch(b"v"))
        fields = fetch_fields(12, "t", {0: 0, 1: 0}, max_wait_ms=100_000, min_bytes=4 * size)
        waiting = reader.send(1, 12, **fields)
        for count in range(4):
            await asyncio.sleep(0.01)
            assert reader.reader._buffer == b""  # type: ignore[attr-defined]  # not enough yet
            await put(writer, "t", b"v", partition=count % 2)
        answer = await reader.answer(1, 12, waiting)
        assert sum(len(part.records) for part in answer.responses[0].partitions) == 4 * size
        await reader.close()
        await writer.close()


async def test_a_fetch_of_nothing_is_answered_at_once(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        client = await RawClient.connect(door)
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {}, max_wait_ms=100_000, topics=()))
        assert (answer.error_code, answer.responses) == (0, ())
        await client.close()


async def test_at_least_one_batch_and_then_the_limits(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t", partitions=3)
        client = await RawClient.connect(door)
        for partition in range(3):
            for _ in range(2):
                await put(client, "t", b"x" * 1000, partition=partition)
        size = len(batch(b"x" * 1000))

        async def sizes(max_bytes: int) -> list[int]:
            fields = fetch_fields(12, "t", {0: 0, 1: 0, 2: 0}, max_wait_ms=100_000)
            answer = await client.ask(1, 12, **fields | {"max_bytes": max_bytes})
            return [len(part.records) for part in answer.responses[0].partitions]

        assert await sizes(1) == [size, 0, 0]
        assert await sizes(2 * size) == [2 * size, 0, 0]
        assert await sizes(3 * size) == [2 * size, size, 0]
        assert await sizes(100 * size) == [2 * size] * 3
        await client.close()


async def test_answers_are_small_while_slow_clients_hold_much(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        client = await RawClient.connect(door)
        for _ in range(4):
            await put(client, "t", b"x" * 50_000)
        door.owe(OWED_BYTES_MAX + 1)
        found = only(await client.ask(1, 12, **fetch_fields(12, "t", {0: 0})))
        assert len(found.records) == len(batch(b"x" * 50_000))
        door.owe(-OWED_BYTES_MAX - 1)
        found = only(await client.ask(1, 12, **fetch_fields(12, "t", {0: 0})))
        assert len(found.records) == 4 * len(batch(b"x" * 50_000))
        await client.close()


async def test_a_fetch_session(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t", partitions=3)
        client = await RawClient.connect(door)
        opened = await client.ask(1, 12, **fetch_fields(12, "t", {0: 0, 1: 0, 2: 0}, session_epoch=0))
        session = {"session_id": opened.session_id}
        assert opened.session_id > 0
        assert len(opened.responses[0].partitions) == 3
        await put(client, "t", b"v", partition=1)
        again = await client.ask(1, 12, **fetch_fields(12, "t", {}, topics=(), session_epoch=1, **session))
        assert only(again).partition_index == 1
        assert again.session_id == opened.session_id
        moved = await client.ask(1, 12, **fetch_fields(12, "t", {1: 1}, session_epoch=2, **session))
        assert moved.responses == ()
        wrong = await client.ask(1, 12, **fetch_fields(12, "t", {1: 1}, session_epoch=2, **session))
        assert (wrong.error_code, wrong.responses) == (71, ())
        fields = fetch_fields(12, "t", {}, topics=(), session_epoch=-1, max_wait_ms=100_000, **session)
        closed = await client.ask(1, 12, **fields)
        assert (closed.error_code, closed.session_id) == (0, 0)
        gone = await client.ask(1, 12, **fetch_fields(12, "t", {}, topics=(), session_epoch=3, **session))
        assert gone.error_code == 70
        await client.close()


async def test_a_fetch_is_answered_when_its_topic_goes(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        await door.broker.topics.create("t")
        client = await RawClient.connect(door)
        waiting = client.send(1, 12, **fetch_fields(12, "t", {0: 0}, max_wait_ms=100_000))
        await asyncio.sleep(0.02)
        await door.broker.topics.delete("t")
        found = only(await client.answer(1, 12, waiting))
        assert found.error_code in {3, 6}
        await client.close()
