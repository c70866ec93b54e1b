"""Metadata and DescribeTopicPartitions through the Kafka server, in every version."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

pytestmark = pytest.mark.event_loop("uvloop")


def metadata_topics(version: int, *keys: str | UUID) -> tuple[Any, ...]:
    return tuple(
        request_part(
            3,
            version,
            "MetadataRequestTopic",
            name=key if isinstance(key, str) else None,
            topic_id=key if isinstance(key, UUID) else None,
        )
        for key in keys
    )


async def test_metadata_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t", partitions=2)
        for version in VERSIONS[3]:
            for _ in range(2):  # the second answer is the remembered one
                reported = await client.ask(3, version, topics=metadata_topics(version, "t"))
                assert [(node.node_id, node.host, node.port) for node in reported.brokers] == [(0, *server.address)]
                (found,) = reported.topics
                assert (found.name, found.error_code) == ("t", 0)
                assert [part.partition_index for part in found.partitions] == [0, 1]
                assert {part.leader_id for part in found.partitions} == {0}
                assert {part.replica_nodes for part in found.partitions} == {(0,)}
            if version >= 2:
                assert reported.cluster_id == server.broker.cluster_id
            if version >= 1:
                assert reported.controller_id == 0
                assert (await client.ask(3, version, topics=())).topics == ()
            if version >= 10:
                assert found.topic_id == topic.topic_id
            everything = await client.ask(3, version, topics=None if version >= 1 else ())
            assert [each.name for each in everything.topics] == ["t"]


async def test_metadata_creates_what_is_missing_where_that_is_wanted(tmp_path: Path) -> None:
    async with connected(tmp_path, {"num.partitions": "4"}) as (client, server):
        reported = await client.ask(3, 9, topics=metadata_topics(9, "no"), allow_auto_topic_creation=False)
        assert [topic.error_code for topic in reported.topics] == [3]
        reported = await client.ask(3, 9, topics=metadata_topics(9, "yes", "a/b", "..", "x" * 250))
        assert [topic.error_code for topic in reported.topics] == [0, 17, 17, 17]
        assert len(reported.topics[0].partitions) == 4
        reported = await client.ask(3, 1, topics=metadata_topics(1, "old", "__consumer_offsets"))
        assert [topic.error_code for topic in reported.topics] == [0, 3]
        assert {topic.name for topic in server.broker.view.topics()} == {"yes", "old"}
    (tmp_path / "other").mkdir()
    async with connected(tmp_path / "other", {"auto.create.topics.enable": "false"}) as (client, server):
        reported = await client.ask(3, 9, topics=metadata_topics(9, "yes"))
        assert [topic.error_code for topic in reported.topics] == [3]


async def test_metadata_by_id_and_operations(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t")
        stranger = uuid4()
        reported = await client.ask(3, 12, topics=metadata_topics(12, topic.topic_id, stranger))
        assert [(each.name, each.error_code) for each in reported.topics] == [("t", 0), (None, 100)]
        assert reported.topics[0].topic_authorized_operations == -(2**31)
        reported = await client.ask(
            3, 12, topics=metadata_topics(12, topic.topic_id), include_topic_authorized_operations=True
        )
        assert reported.topics[0].topic_authorized_operations > 0


async def test_describe_topic_partitions_page_by_page(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await server.broker.topics.create(name, partitions=partitions)
        pages, cursor = [], None
        while True:
            reported = await client.ask(75, 0, response_partition_limit=2, cursor=cursor)
            pages += [(topic.name, part.partition_index) for topic in reported.topics for part in topic.partitions]
            assert all(part.eligible_leader_replicas == () for topic in reported.topics for part in topic.partitions)
            if reported.next_cursor is None:
                break
            end = reported.next_cursor
            cursor = request_part(75, 0, "Cursor", topic_name=end.topic_name, partition_index=end.partition_index)
        assert pages == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        asked = tuple(request_part(75, 0, "TopicRequest", name=name) for name in ("unknown", "c", "a/b"))
        reported = await client.ask(75, 0, topics=asked, response_partition_limit=100)
        assert [(topic.name, topic.error_code) for topic in reported.topics] == [("a/b", 17), ("c", 0), ("unknown", 3)]
