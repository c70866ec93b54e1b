"""Clients above their quotas: the throttle time in their responses, and connections that are not read meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import (
    RawClient,
    batch,
    body_of,
    fetch_fields,
    frame,
    produce_fields,
    request_part,
    running_kafka_server,
)
from tests.support.quotas import set_quotas
from tests.support.waiting import eventually_async

from tidemill.servers.kafka.listener import KafkaServer

SETTINGS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""A client may send for one second at once."""
RECORDS = batch(b"x" * 2000)
THROTTLING_QUOTA_EXCEEDED, TOPIC_EXISTS, TOPIC_AUTHORIZATION_FAILED, INVALID_RECORD = 89, 36, 29, 87


async def create(client: RawClient, *names: str, version: int = 7, partitions: int = 1, **more: Any) -> Any:
    topics = tuple(
        request_part(19, version, "CreatableTopic", name=name, num_partitions=partitions, replication_factor=1)
        for name in names
    )
    return await client.ask(19, version, topics=topics, **more)


def ms(response: Any) -> float:
    found: float = response.throttle_time.total_seconds() * 1000
    return found


async def topic_id(client: RawClient, name: str) -> Any:
    part = request_part(3, 12, "MetadataRequestTopic", name=name, topic_id=None)
    return (await client.ask(3, 12, topics=(part,))).topics[0].topic_id


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12, 13])
async def test_a_producer_above_its_quota_gets_the_time_to_wait(tmp_path: Path, version: int) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        topic = await topic_id(client, "orders") if version >= 13 else "orders"
        await set_quotas(client, {"client-id": "test"}, producer_byte_rate=2000.0)
        first = await client.ask(0, version, **produce_fields(version, topic, 0, RECORDS))
        waited_from = asyncio.get_running_loop().time()
        assert 0 < ms(first) < 200  # a little more than 2000 bytes, of which 2000 are allowed at once
        second = await client.ask(0, version, **produce_fields(version, topic, 0, RECORDS))
        took_ms = (asyncio.get_running_loop().time() - waited_from) * 1000
        assert took_ms >= ms(first) * 0.9  # the connection was not read before
        assert 900 < ms(second) < 1300
        for response in (first, second):
            part = response.responses[0].partition_responses[0]
            assert int(part.error_code) == 0
        assert second.responses[0].partition_responses[0].base_offset == 1
        await client.close()


async def test_a_throttled_connection_is_not_read_until_the_quotas_change(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client, other = await RawClient.connect(server), await RawClient.connect(server)
        await create(client, "orders")
        await set_quotas(client, {"client-id": "test"}, producer_byte_rate=10.0)
        response = await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        assert ms(response) > 100_000
        number = client.send(18, 0)
        answer = asyncio.create_task(client.answer(18, 0, number))
        await other.ask(18, 0)  # another connection of the client is read, as in Kafka
        assert not answer.done()
        await set_quotas(other, {"client-id": "test"}, producer_byte_rate=None)
        server._tend_throttled(0.0)
        assert (await answer).error_code == 0
        await client.close()
        await other.close()


async def test_another_connection_does_not_avoid_the_quota(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        await set_quotas(client, {"client-id": "test"}, producer_byte_rate=1500.0)
        reported = await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        assert ms(reported) > 100
        other = await RawClient.connect(server)
        began = asyncio.get_running_loop().time()
        await other.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        assert (asyncio.get_running_loop().time() - began) * 1000 >= ms(reported) * 0.5
        await client.close()
        await other.close()


async def test_a_throttled_client_does_not_hold_the_memory_of_others(tmp_path: Path) -> None:
    limits = {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}
    async with running_kafka_server(tmp_path, {**SETTINGS, **limits}) as server:
        loud, quiet = await RawClient.connect(server), await RawClient.connect(server)
        await create(quiet, "orders")
        await set_quotas(quiet, {"client-id": "loud"}, producer_byte_rate=10.0)
        large = produce_fields(9, "orders", 0, batch(b"x" * 300_000))
        loud.writer.write(
            frame(1, 11, 1, body_of(1, 11, fetch_fields(11, "orders", {0: 0}, max_wait_ms=300)), b"loud")
            + frame(0, 9, 2, body_of(0, 9, produce_fields(9, "orders", 0, RECORDS)), b"loud")
            + frame(0, 9, 3, body_of(0, 9, large), b"loud") * 2
        )
        for _ in range(2):
            await loud.frame()  # the fetch, and the small batch above the quota
        [connection] = [each for each in server._connections if each.held_throttled_bytes]
        assert connection.held_throttled_bytes > 600_000
        quiet.send(0, 9, **produce_fields(9, "orders", 0, batch(b"y" * 450_000)))
        assert await loud.ended()
        assert await quiet.frame()
        assert server.broker.view.partition("orders", 0).log_end_offset == 2
        for each in (loud, quiet):
            await each.close()


async def test_a_throttled_client_that_leaves_is_noticed(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client, keeper = await RawClient.connect(server), await RawClient.connect(server)
        await create(client, "orders")
        await set_quotas(client, {"client-id": "test"}, producer_byte_rate=10.0)
        server._tend_throttled(0.0)
        await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        assert len(server._connections) == 2
        await client.close()

        def left() -> bool:
            server._tend_throttled(0.0)
            return len(server._connections) == 1

        await eventually_async(left)
        await keeper.ask(18, 0)
        await keeper.close()


@pytest.mark.parametrize("version", [4, 7, 12, 13])
async def test_a_consumer_above_its_quota_gets_an_empty_response(tmp_path: Path, version: int) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        topic = await topic_id(client, "orders") if version >= 13 else "orders"
        for _ in range(4):
            await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        await set_quotas(client, {"client-id": "test"}, consumer_byte_rate=2500.0)
        first = await client.ask(1, version, **fetch_fields(version, topic, {0: 0}))
        records = first.responses[0].partitions[0].records
        assert ms(first) == 0
        assert 0 < len(records) <= 2500  # no more than the quota allows at once
        second = await client.ask(1, version, **fetch_fields(version, topic, {0: 1}))
        assert second.responses == ()
        assert 100 < ms(second) <= 1000
        third = await client.ask(1, version, **fetch_fields(version, topic, {0: 1}))
        assert len(third.responses[0].partitions[0].records) > 0
        await client.close()


async def test_a_throttled_fetch_reads_nothing_and_keeps_its_session(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        for _ in range(3):
            await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        await set_quotas(client, {"client-id": "test"}, consumer_byte_rate=1500.0)
        first = await client.ask(1, 11, **fetch_fields(11, "orders", {0: 0}, session_epoch=0))
        assert len(first.responses[0].partitions[0].records) > 1500  # one batch is sent, whatever its size
        session = first.session_id
        assert session
        reader = server.broker.view.partition("orders", 0).reader
        reads = 0
        read = reader.read

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*args, **options)

        reader.read = counted  # type: ignore[method-assign]
        second = await client.ask(1, 11, **fetch_fields(11, "orders", {0: 1}, session_id=session, session_epoch=1))
        assert (second.responses, reads) == ((), 0)
        assert (second.session_id, int(second.error_code)) == (session, 0)
        assert ms(second) > 0
        sizes = []
        for epoch in (2, 3):  # the batch is above the whole burst, so the client waits until it has used nothing
            later = await client.ask(
                1, 11, **fetch_fields(11, "orders", {0: 1}, session_id=session, session_epoch=epoch)
            )
            sizes.append(sum(len(part.records) for found in later.responses for part in found.partitions))
        assert sizes == [0, len(RECORDS)]
        await client.close()


async def test_a_new_session_that_is_throttled_is_not_kept(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        for _ in range(3):
            await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        await set_quotas(client, {"client-id": "test"}, consumer_byte_rate=2500.0)
        await client.ask(1, 11, **fetch_fields(11, "orders", {0: 0}))
        reported = await client.ask(1, 11, **fetch_fields(11, "orders", {0: 0}, session_epoch=0))
        assert (reported.session_id, reported.responses) == (0, ())
        assert ms(reported) > 0
        await client.close()


async def test_time_of_the_broker_is_limited(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await set_quotas(client, {"client-id": "test"}, request_percentage=0.01)
        waits = [ms(await client.ask(3, 9, topics=())) for _ in range(3)]
        assert max(waits) > 0
        assert max(waits) <= 1000  # one window at most
        server.broker.security.throttle.set_table(type(server.broker.security.throttle.table)())
        server._quotas_version = -1
        server._tend_throttled(0.0)
        assert ms(await client.ask(3, 9, topics=())) == 0
        await client.close()


@pytest.mark.parametrize(("version", "strict"), [(5, False), (6, True), (7, True)])
async def test_topic_creation_above_the_quota(tmp_path: Path, version: int, strict: bool) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await set_quotas(client, {"client-id": "test"}, controller_mutation_rate=10.0)
        made = await create(client, "one", version=version, partitions=12)
        assert [int(each.error_code) for each in made.topics] == [0]
        assert ms(made) == 0
        reported = await create(client, "two", "three", version=version)
        codes = [int(each.error_code) for each in reported.topics]
        assert codes == ([THROTTLING_QUOTA_EXCEEDED] * 2 if strict else [0, 0])
        assert 0 < ms(reported) <= 1000
        assert (server.broker.view.topic("two") is None) == strict
        await create(client, "four", version=version)  # read when the time is over
        assert server.broker.view.topic("four") is not None
        await client.close()


async def test_changes_that_are_not_made_are_not_counted(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "one")
        await set_quotas(client, {"client-id": "test"}, controller_mutation_rate=1.0)
        for _ in range(3):
            again = await create(client, "one", partitions=50)
            assert [int(each.error_code) for each in again.topics] == [TOPIC_EXISTS]
            checked = await create(client, "two", partitions=50, validate_only=True)
            assert [int(each.error_code) for each in checked.topics] == [0]
            assert ms(again) == ms(checked) == 0
        await client.close()


async def test_deletions_and_new_partitions_above_the_quota(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, SETTINGS) as server:
        client = await RawClient.connect(server)
        await create(client, "one", "two", partitions=4)
        await set_quotas(client, {"client-id": "test"}, controller_mutation_rate=4.0)
        more = request_part(37, 3, "CreatePartitionsTopic", name="one", count=9, assignments=None)
        assert [int(each.error_code) for each in (await client.ask(37, 3, topics=(more,))).results] == [0]
        gone = request_part(20, 6, "DeleteTopicState", name="two", topic_id=None)
        reported = await client.ask(20, 6, topics=(gone,))
        assert [int(each.error_code) for each in reported.responses] == [THROTTLING_QUOTA_EXCEEDED]
        assert ms(reported) > 0
        reported = await client.ask(20, 6, topics=(gone,))
        assert [int(each.error_code) for each in reported.responses] == [0]
        more = request_part(37, 3, "CreatePartitionsTopic", name="one", count=10, assignments=None)
        server.broker.security.throttle.spend(_mutation(), "ANONYMOUS", "test", 100.0, 0.0)
        reported = await client.ask(37, 3, topics=(more,))
        assert [int(each.error_code) for each in reported.results] == [THROTTLING_QUOTA_EXCEEDED]
        await client.close()


def _mutation() -> Any:
    from tidemill.security.core.quotas import QuotaKind

    return QuotaKind.MUTATION


async def test_a_producer_whose_requests_fail_is_throttled_until_they_succeed(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        damaged = bytearray(RECORDS)
        damaged[-1] ^= 0xFF
        fields = produce_fields(9, "orders", 0, bytes(damaged))
        reported = [await client.ask(0, 9, **fields) for _ in range(20)]
        assert {int(each.responses[0].partition_responses[0].error_code) for each in reported} == {2}
        assert [ms(each) for each in reported[:19]] == [0] * 19
        assert ms(reported[19]) == 1000
        good = await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))
        assert ms(good) == 0
        await client.close()


async def test_errors_of_the_broker_do_not_count(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        for _ in range(25):
            reported = await client.ask(0, 9, **produce_fields(9, "missing", 0, RECORDS))
            assert int(reported.responses[0].partition_responses[0].error_code) == 3
            assert ms(reported) == 0
        assert not server.broker.security.failing_producers.is_watching
        await client.close()


async def test_without_quotas_nothing_is_measured(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        client = await RawClient.connect(server)
        await create(client, "orders")
        assert ms(await client.ask(0, 9, **produce_fields(9, "orders", 0, RECORDS))) == 0
        assert ms(await client.ask(1, 11, **fetch_fields(11, "orders", {0: 0}))) == 0
        assert _sensors(server) == 0
        await client.close()


def _sensors(server: KafkaServer) -> int:
    return server.broker.security.throttle.sensors()
