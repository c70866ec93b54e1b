"""Offsets, epochs and deleted records through the Kafka server, in every version."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import batch, clock_ms, produce_fields, request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

pytestmark = pytest.mark.event_loop("uvloop")


async def test_offsets_are_listed_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("t")
        before = clock_ms() - 1
        for _ in range(3):
            await client.ask(0, 9, **produce_fields(9, "t", 0, batch(b"v")))
        await server.broker.view.partition("t", 0).leader.delete_records(1)

        async def ask(version: int, timestamp: int, partition: int = 0, **fields: Any) -> Any:
            part = request_part(
                2, version, "ListOffsetsPartition", partition_index=partition, timestamp=timestamp, **fields
            )
            topic = request_part(2, version, "ListOffsetsTopic", name="t", partitions=(part,))
            reported = await client.ask(2, version, replica_id=-1, topics=(topic,))
            return reported.topics[0].partitions[0]

        for version in VERSIONS[2]:
            assert (await ask(version, -1)).offset == 3
            assert (await ask(version, -2)).offset == 1
            assert (await ask(version, before)).offset == 1
            nothing = await ask(version, clock_ms() + 1_000_000)
            assert (nothing.offset, nothing.timestamp, nothing.error_code) == (-1, -1, 0)
            assert (await ask(version, -1, partition=5)).error_code == 3
            for timestamp, since in ((-3, 7), (-4, 8), (-5, 9)):
                assert (await ask(version, timestamp)).error_code == (0 if version >= since else 35)
            assert (await ask(version, -77)).error_code == 35
            if version >= 4:
                assert (await ask(version, -1, current_leader_epoch=99)).error_code == 75
        newest = await ask(10, -3)
        assert newest.offset in {1, 2}
        assert newest.timestamp > before


async def test_epochs_and_deleted_records_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("t")
        for _ in range(10):
            await client.ask(0, 9, **produce_fields(9, "t", 0, batch(b"v")))
        epoch = server.broker.view.partition("t", 0).leader_epoch
        for version in VERSIONS[23]:
            parts = tuple(
                request_part(
                    23,
                    version,
                    "OffsetForLeaderPartition",
                    partition=partition,
                    current_leader_epoch=current,
                    leader_epoch=epoch,
                )
                for partition, current in ((0, -1), (0, epoch + 1), (7, -1))
            )
            topic = request_part(23, version, "OffsetForLeaderTopic", topic="t", partitions=parts)
            reported = (await client.ask(23, version, topics=(topic,))).topics[0].partitions
            assert [part.error_code for part in reported] == [0, 75, 3]
            assert (reported[0].leader_epoch, reported[0].end_offset) == (epoch, 10)
        for version in VERSIONS[21]:
            parts = tuple(
                request_part(21, version, "DeleteRecordsPartition", partition_index=partition, offset=offset)
                for partition, offset in ((0, version + 1), (0, 99), (3, 0))
            )
            topic = request_part(21, version, "DeleteRecordsTopic", name="t", partitions=parts)
            reported = (await client.ask(21, version, topics=(topic,))).topics[0].partitions
            assert [(part.low_watermark, part.error_code) for part in reported] == [(version + 1, 0), (-1, 1), (-1, 3)]
        parts = (request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1),)
        topic = request_part(21, 2, "DeleteRecordsTopic", name="t", partitions=parts)
        assert (await client.ask(21, 2, topics=(topic,))).topics[0].partitions[0].low_watermark == 10


async def test_records_of_a_compacted_topic_are_not_deleted_by_their_offsets(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        for policy, code in (("compact", 44), ("compact,delete", 0)):
            await server.broker.topics.create(f"kept-{code}", partitions=1, overrides={"cleanup.policy": policy})
            part = request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1)
            asked = request_part(21, 2, "DeleteRecordsTopic", name=f"kept-{code}", partitions=(part,))
            reported = await client.ask(21, 2, topics=(asked,))
            assert reported.topics[0].partitions[0].error_code == code
