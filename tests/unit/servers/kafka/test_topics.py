"""Topics through the Kafka server, in every version."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import batch, produce_fields, request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

from tidemill.model import topic_settings

pytestmark = pytest.mark.event_loop("uvloop")


def creatable(version: int, name: str, **fields: Any) -> Any:
    configs = tuple(
        request_part(19, version, "CreatableTopicConfig", name=key, value=value)
        for key, value in fields.pop("configs", {}).items()
    )
    defaults = {"num_partitions": 2, "replication_factor": 1, "configs": configs}
    return request_part(19, version, "CreatableTopic", name=name, **defaults | fields)


async def test_topics_are_created_and_deleted_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        for version in VERSIONS[19]:
            name = f"t{version}"
            asked = (creatable(version, name, configs={"retention.ms": "1000"}),)
            reported = (await client.ask(19, version, topics=asked, validate_only=True)).topics
            assert reported[0].error_code == 0
            assert server.broker.view.topic(name) is None
            reported = (await client.ask(19, version, topics=asked)).topics
            assert reported[0].error_code == 0
            topic = server.broker.view.topic(name)
            assert topic is not None
            assert topic.settings.retention_ms == 1000
            if version >= 5:
                assert (reported[0].num_partitions, reported[0].replication_factor) == (2, 1)
                configs = {config.name: (config.value, config.config_source) for config in reported[0].configs}
                assert configs["retention.ms"] == ("1000", 1)
                assert configs["segment.bytes"][1] == 5
                assert set(configs) == set(topic_settings.SETTINGS)
        for version in VERSIONS[20]:
            name = f"t{version + 1}"
            if version < 6:
                reported = await client.ask(20, version, topic_names=(name, "unknown"))
            else:
                parts = tuple(request_part(20, version, "DeleteTopicState", name=key) for key in (name, "unknown"))
                reported = await client.ask(20, version, topics=parts)
            assert [each.error_code for each in reported.responses] == [0, 3]
            assert server.broker.view.topic(name) is None
        topic = await server.broker.topics.create("by-id")
        parts = tuple(
            request_part(20, 6, "DeleteTopicState", name=None, topic_id=key) for key in (topic.topic_id, uuid4())
        )
        reported = await client.ask(20, 6, topics=parts)
        assert [(each.name, each.error_code) for each in reported.responses] == [("by-id", 0), (None, 100)]


async def test_create_topics_rejects_invalid_requests(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("there")
        cases: dict[str, tuple[dict[str, Any], int]] = {
            "there": ({}, 36),
            "a/b": ({}, 17),
            "p0": ({"num_partitions": 0}, 37),
            "p-huge": ({"num_partitions": 1_000_000}, 44),
            "rf": ({"replication_factor": 3}, 38),
            "cfg": ({"configs": {"retention.sm": "1"}}, 40),
            "cfg2": ({"configs": {"retention.ms": "soon"}}, 40),
            "cfg3": ({"configs": {"retention.ms": None}}, 40),
            "cfg4": ({"configs": {"retention.ms": "1_000"}}, 40),
            "cfg5": ({"configs": {"min.cleanable.dirty.ratio": "nan"}}, 40),
            "cfg6": ({"configs": {"min.cleanable.dirty.ratio": "0.1_0"}}, 40),
        }
        asked = tuple(creatable(7, name, **fields) for name, (fields, _) in cases.items())
        reported = await client.ask(19, 7, topics=asked)
        assert {each.name: each.error_code for each in reported.topics} == {
            name: code for name, (_, code) in cases.items()
        }
        assert all(each.configs == () for each in reported.topics)
        reported = await client.ask(19, 7, topics=(creatable(7, "twice"), creatable(7, "twice")))
        assert [each.error_code for each in reported.topics] == [42, 42]
        assert (await client.ask(19, 7, topics=())).topics == ()
        assert [topic.name for topic in server.broker.view.topics()] == ["there"]
        placed = creatable(
            7,
            "placed",
            num_partitions=-1,
            replication_factor=-1,
            assignments=(request_part(19, 7, "CreatableReplicaAssignment", partition_index=0, broker_ids=(0,)),),
        )
        assert (await client.ask(19, 7, topics=(placed,))).topics[0].error_code == 0


async def test_partitions_are_added_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("t")
        for version in VERSIONS[37]:
            total = version + 2

            def grow(name: str, count: int, version: int = version) -> Any:
                return request_part(37, version, "CreatePartitionsTopic", name=name, count=count, assignments=None)

            reported = await client.ask(37, version, topics=(grow("t", total), grow("unknown", 5)))
            assert [each.error_code for each in reported.results] == [0, 3]
            reported = await client.ask(37, version, topics=(grow("t", total),))
            assert reported.results[0].error_code == 37
        topic = server.broker.view.topic("t")
        assert topic is not None
        assert len(topic.partitions) == 5


async def test_the_brokers_own_topics_are_not_for_clients(tmp_path: Path) -> None:
    name = "__consumer_offsets"

    async with connected(tmp_path) as (client, server):
        reported = await client.ask(0, 9, **produce_fields(9, name, 0, batch(b"v")))
        assert reported.responses[0].partition_responses[0].error_code == 17
        parts = (request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1),)
        topic = request_part(21, 2, "DeleteRecordsTopic", name=name, partitions=parts)
        assert (await client.ask(21, 2, topics=(topic,))).topics[0].partitions[0].error_code == 17
        more = request_part(37, 3, "CreatePartitionsTopic", name=name, count=99, assignments=None)
        assert (await client.ask(37, 3, topics=(more,))).results[0].error_code == 17
        assert (await client.ask(19, 7, topics=(creatable(7, name),))).topics[0].error_code == 17
        assert (await client.ask(20, 5, topic_names=(name,))).responses[0].error_code in {3, 17}
        assert server.broker.view.topics() == []


async def test_a_repeated_or_ambiguous_topic_is_rejected(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t", partitions=1)
        both = request_part(3, 12, "MetadataRequestTopic", name="t", topic_id=UUID(int=7))
        reported = await client.ask(3, 12, topics=(both,), allow_auto_topic_creation=False)
        assert [each.error_code for each in reported.topics] == [100], (
            "an id is what it is; a name may be another topic's"
        )
        twice = (request_part(20, 6, "DeleteTopicState", name="t", topic_id=None),) * 2
        reported = await client.ask(20, 6, topics=twice)
        assert {each.error_code for each in reported.responses} == {42}
        assert server.broker.view.topic("t") == topic
