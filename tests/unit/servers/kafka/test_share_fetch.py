"""Share fetches, acknowledgements and share sessions through the Kafka server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from tests.support.kafka_server import RawClient, request_part, running_kafka_server
from tests.support.waiting import eventually_async

from tidemill.broker.share_metrics import ShareReadings
from tidemill.model.metrics import HistogramReading
from tidemill.records.build import NewRecord, build_batch
from tidemill.servers.kafka.listener import KafkaServer

pytestmark = pytest.mark.event_loop("uvloop")

INVALID_REQUEST, NO_SESSION, WRONG_EPOCH, TOO_MANY, WRONG_STATE = 42, 122, 123, 133, 121
UNKNOWN_TOPIC_ID, UNKNOWN_PARTITION = 100, 3


class Stage(NamedTuple):
    """A topic with 30 records in 3 batches, and a group that reads it from the start."""

    server: KafkaServer
    client: RawClient
    topic_id: UUID

    def topics(self, key: int, version: int, kind: str, part: str, *acks: tuple[int, int, tuple[int, ...]]) -> Any:
        batches = tuple(
            request_part(
                key, version, "AcknowledgementBatch", first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, types in acks
        )
        inner = request_part(key, version, part, partition_index=0, acknowledgement_batches=batches)
        return (request_part(key, version, kind, topic_id=self.topic_id, partitions=(inner,)),)

    async def fetch(self, epoch: int, *acks: tuple[int, int, tuple[int, ...]], **other: Any) -> Any:
        fields = {"group_id": "g", "member_id": "m", "max_wait": timedelta(0), "max_records": 100, "batch_size": 100}
        topics = self.topics(78, 2, "FetchTopic", "FetchPartition", *acks) if epoch == 0 or acks else ()
        return await self.client.ask(78, 2, share_session_epoch=epoch, **{**fields, "topics": topics, **other})

    async def acknowledge(self, epoch: int, *acks: tuple[int, int, tuple[int, ...]], **other: Any) -> Any:
        topics = self.topics(79, 2, "AcknowledgeTopic", "AcknowledgePartition", *acks) if acks else ()
        fields = {"group_id": "g", "member_id": "m", "share_session_epoch": epoch, "topics": topics, **other}
        return await self.client.ask(79, 2, **fields)


@asynccontextmanager
async def staged(folder: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Stage]:
    async with running_kafka_server(folder, settings) as server:
        topic = await server.broker.topics.create("orders")
        reset = {"share.auto.offset.reset": "earliest"}
        await server.broker.group_overrides.alter("g", reset, validate_only=False)
        leader = server.broker.view.partition("orders", 0).leader
        for _ in range(3):
            await leader.append(build_batch([NewRecord(None, b"v", timestamp=1) for _ in range(10)]), acks=-1)
        client = await RawClient.connect(server)
        member = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ("orders",)}
        assert (await client.ask(76, 1, **member)).error_code == 0
        yield Stage(server, client, topic.topic_id)
        await client.close()


def acquired(response: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for part in topic.partitions
        for each in part.acquired_records
    ]


def part_of(response: Any) -> Any:
    return response.responses[0].partitions[0]


async def test_a_session_fetches_acknowledges_and_closes(tmp_path: Path) -> None:
    async with staged(tmp_path) as at:
        assert acquired(await at.fetch(0, max_records=15)) == [(0, 19, 1)]
        response = await at.fetch(1, (0, 19, (1,)))
        assert part_of(response).acknowledge_error_code == 0
        assert acquired(response) == [(20, 29, 1)]
        assert part_of(await at.acknowledge(2, (20, 24, (2,)))).error_code == 0
        assert acquired(await at.fetch(3)) == [(20, 24, 2)]
        assert (await at.acknowledge(-1)).error_code == 0
        assert acquired(await at.fetch(0)) == [(20, 24, 2), (25, 29, 1)]


async def test_wrong_epochs_and_requests_are_refused(tmp_path: Path) -> None:
    async with staged(tmp_path, {"group.share.max.share.sessions": "1"}) as at:
        assert (await at.fetch(1)).error_code == NO_SESSION
        assert (await at.acknowledge(-1)).error_code == NO_SESSION
        assert (await at.fetch(0, (0, 1, (1,)))).error_code == INVALID_REQUEST
        assert (await at.fetch(0, max_records=10)).error_code == 0
        assert (await at.fetch(0, member_id="other")).error_code == TOO_MANY
        assert (await at.acknowledge(0)).error_code == WRONG_EPOCH
        assert (await at.fetch(5)).error_code == WRONG_EPOCH
        assert (await at.fetch(1, member_id="")).error_code == INVALID_REQUEST
        assert (await at.fetch(1, group_id=None)).error_code == INVALID_REQUEST
        assert part_of(await at.acknowledge(1, (0, 40, (1,)))).error_code == INVALID_REQUEST
        assert part_of(await at.acknowledge(2, (0, 9, (4,)))).error_code == INVALID_REQUEST
        assert part_of(await at.acknowledge(3, (0, 9, (4,)), is_renew_ack=True)).error_code == 0
        assert part_of(await at.acknowledge(4, (0, 9, (1,)))).error_code == 0
        assert part_of(await at.fetch(5, (5, 9, (1,)), max_records=10)).acknowledge_error_code == 0
        assert part_of(await at.acknowledge(6, (10, 11, (1,) * 2))).error_code == 0
        assert part_of(await at.acknowledge(7, (11, 12, (1,)))).error_code == 0


async def test_unknown_topics_and_groups_are_reported(tmp_path: Path) -> None:
    async with staged(tmp_path) as at:
        inner = request_part(78, 2, "FetchPartition", partition_index=0)
        unknown = (request_part(78, 2, "FetchTopic", topic_id=UUID(int=9), partitions=(inner,)),)
        assert part_of(await at.fetch(0, topics=unknown)).error_code == UNKNOWN_TOPIC_ID
        assert part_of(await at.fetch(0, group_id="without-members")).error_code == UNKNOWN_PARTITION
        missing = request_part(78, 2, "FetchPartition", partition_index=7)
        topics = (request_part(78, 2, "FetchTopic", topic_id=at.topic_id, partitions=(missing,)),)
        assert part_of(await at.fetch(0, topics=topics)).error_code == UNKNOWN_PARTITION


async def test_a_lost_connection_frees_its_records_and_counts_the_delivery(tmp_path: Path) -> None:
    async with staged(tmp_path) as at:
        other = at._replace(client=await RawClient.connect(at.server))
        assert acquired(await other.fetch(0, member_id="gone")) == [(0, 29, 1)]
        assert acquired(await at.fetch(0)) == []
        await other.client.close()
        [live] = at.server.broker.shares.opened()
        await eventually_async(lambda: live.core.next_offset() == 0)
        assert acquired(await at.fetch(1)) == [(0, 29, 2)]


async def test_a_fetch_waits_for_records_that_are_released(tmp_path: Path) -> None:
    async with staged(tmp_path, {"group.share.record.lock.duration.ms": "300"}) as at:
        other = at._replace(client=await RawClient.connect(at.server))
        assert acquired(await other.fetch(0, member_id="slow")) == [(0, 29, 1)]
        assert acquired(await at.fetch(0, max_wait=timedelta(seconds=30))) == [(0, 29, 2)]
        response = await other.acknowledge(1, (0, 29, (1,)), member_id="slow")
        assert part_of(response).error_code == WRONG_STATE
        await other.client.close()


async def test_metrics_show_records_lag_and_results(tmp_path: Path) -> None:
    async with staged(tmp_path) as at:
        await at.fetch(0, max_records=20)
        await at.acknowledge(1, (0, 4, (1,)), (5, 6, (2,)), (7, 7, (3,)))
        broker = at.server.broker
        readings = await ShareReadings(broker.share_positions, broker.shares.counts).snapshot(by_partition=False)
        found = {
            (each.name, *(value for _, value in each.labels[2:])): each.value
            for each in readings
            if not isinstance(each, HistogramReading) and each.labels[:2] == (("group", "g"), ("topic", "orders"))
        }
        assert found.pop(("tidemill_share_oldest_lock_seconds",)) >= 0
        assert found == {
            ("tidemill_share_delivery_results", "accepted"): 5,
            ("tidemill_share_delivery_results", "released"): 2,
            ("tidemill_share_delivery_results", "archived"): 1,
            ("tidemill_share_delivery_results", "expired"): 0,
            ("tidemill_share_archived_records",): 1,
            ("tidemill_share_deliveries", "1"): 20,
            ("tidemill_share_deliveries", "2"): 0,
            ("tidemill_share_deliveries", "3"): 0,
            ("tidemill_share_deliveries", "4 or more"): 0,
            ("tidemill_share_records", "acquired"): 12,
            ("tidemill_share_records", "available"): 2,
            ("tidemill_share_records", "waiting"): 0,
            ("tidemill_share_lag_records",): 24,
            ("tidemill_share_lag_unknown_partitions",): 0,
        }
