"""Fetch through the Kafka server."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import (
    RawClient,
    batch,
    fetch_fields,
    produce_fields,
    request_part,
    running_kafka_server,
)

from tidemill.records.compression import Codec
from tidemill.servers.kafka.listener import OWED_BYTES_MAX

pytestmark = pytest.mark.event_loop("uvloop")
FETCH = range(4, 18)


async def put(client: RawClient, topic: str, *values: bytes, partition: int = 0, **options: Any) -> Any:
    answer = await client.ask(0, 9, **produce_fields(9, topic, partition, batch(*values, **options)))
    return answer.responses[0].partition_responses[0]


def only(answer: Any) -> Any:
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


async def test_fetch_in_every_version(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        topic = await server.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(server)
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
        assert server.broker.metrics.topic("t").bytes_out == len(records) * len(FETCH)
        await client.close()


async def test_fetch_rejects_invalid_requests(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        topic = await server.broker.topics.create("t")
        client = await RawClient.connect(server)
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


async def test_no_client_fetches_as_a_replica(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {0: 0}, replica_id=1))
        assert (answer.error_code, answer.responses) == (31, ())
        state = request_part(1, 17, "ReplicaState", replica_id=1, replica_epoch=-1)
        answer = await client.ask(1, 17, **fetch_fields(17, UUID(int=1), {0: 0}, replica_state=state))
        assert answer.error_code == 31
        await client.close()


async def test_zstd_is_not_given_to_clients_that_cannot_read_it(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        assert (await put(client, "t", b"v" * 100, codec=Codec.ZSTD)).error_code == 0
        assert only(await client.ask(1, 9, **fetch_fields(9, "t", {0: 0}))).error_code == 76
        assert only(await client.ask(1, 10, **fetch_fields(10, "t", {0: 0}))).error_code == 0
        await client.close()


async def test_a_fetch_waits_for_records_and_no_longer(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t", partitions=3)
        reader, writer = await RawClient.connect(server), await RawClient.connect(server)
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
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        clients = [await RawClient.connect(server) for _ in range(10)]
        for turn in range(30):
            fields = fetch_fields(12, "t", {0: 0}, max_wait_ms=1 + turn % 7)
            sent = [client.send(1, 12, **fields) for client in clients]
            for client, correlation in zip(clients, sent, strict=True):
                assert only(await client.answer(1, 12, correlation)).records == b""
        assert len(server.broker.view.partition("t", 0)._replica.waiters) == 0
        for client in clients:
            await client.close()


async def test_a_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t", partitions=2)
        reader, writer = await RawClient.connect(server), await RawClient.connect(server)
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
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {}, max_wait_ms=100_000, topics=()))
        assert (answer.error_code, answer.responses) == (0, ())
        await client.close()


async def test_at_least_one_batch_and_then_the_limits(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t", partitions=3)
        client = await RawClient.connect(server)
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
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        for _ in range(4):
            await put(client, "t", b"x" * 50_000)
        server.owe(OWED_BYTES_MAX + 1)
        found = only(await client.ask(1, 12, **fetch_fields(12, "t", {0: 0})))
        assert len(found.records) == len(batch(b"x" * 50_000))
        server.owe(-OWED_BYTES_MAX - 1)
        found = only(await client.ask(1, 12, **fetch_fields(12, "t", {0: 0})))
        assert len(found.records) == 4 * len(batch(b"x" * 50_000))
        await client.close()


async def test_a_fetch_session(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t", partitions=3)
        client = await RawClient.connect(server)
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
    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        client = await RawClient.connect(server)
        waiting = client.send(1, 12, **fetch_fields(12, "t", {0: 0}, max_wait_ms=100_000))
        await asyncio.sleep(0.02)
        await server.broker.topics.delete("t")
        found = only(await client.answer(1, 12, waiting))
        assert found.error_code in {3, 6}
        await client.close()
