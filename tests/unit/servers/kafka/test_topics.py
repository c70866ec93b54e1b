"""Topics, settings, offsets and nodes through the door, in every version."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import RawClient, batch, clock_ms, kafka_door, produce_fields, request_part

from tidemill.model import broker_settings, topic_settings
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.wire.kafka.schema import request_class

pytestmark = pytest.mark.event_loop("uvloop")

VERSIONS = {api.key: range(api.versions[0], api.versions[1] + 1) for api in standard_table().listed()}


@asynccontextmanager
async def connected(
    folder: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[RawClient, KafkaServer]]:
    async with kafka_door(folder, settings) as door:
        client = await RawClient.connect(door)
        yield client, door
        await client.close()


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
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t", partitions=2)
        for version in VERSIONS[3]:
            for _ in range(2):  # the second answer is the remembered one
                told = await client.ask(3, version, topics=metadata_topics(version, "t"))
                assert [(node.node_id, node.host, node.port) for node in told.brokers] == [(0, *door.address)]
                (found,) = told.topics
                assert (found.name, found.error_code) == ("t", 0)
                assert [part.partition_index for part in found.partitions] == [0, 1]
                assert {part.leader_id for part in found.partitions} == {0}
                assert {part.replica_nodes for part in found.partitions} == {(0,)}
            if version >= 2:
                assert told.cluster_id == door.broker.cluster_id
            if version >= 1:
                assert told.controller_id == 0
                assert (await client.ask(3, version, topics=())).topics == ()
            if version >= 10:
                assert found.topic_id == topic.topic_id
            everything = await client.ask(3, version, topics=None if version >= 1 else ())
            assert [each.name for each in everything.topics] == ["t"]


async def test_metadata_creates_what_is_missing_where_that_is_wanted(tmp_path: Path) -> None:
    async with connected(tmp_path, {"num.partitions": "4"}) as (client, door):
        told = await client.ask(3, 9, topics=metadata_topics(9, "no"), allow_auto_topic_creation=False)
        assert [topic.error_code for topic in told.topics] == [3]
        told = await client.ask(3, 9, topics=metadata_topics(9, "yes", "a/b", "..", "x" * 250))
        assert [topic.error_code for topic in told.topics] == [0, 17, 17, 17]
        assert len(told.topics[0].partitions) == 4
        told = await client.ask(3, 1, topics=metadata_topics(1, "old", "__consumer_offsets"))
        assert [topic.error_code for topic in told.topics] == [0, 3]
        assert {topic.name for topic in door.broker.view.topics()} == {"yes", "old"}
    (tmp_path / "other").mkdir()
    async with connected(tmp_path / "other", {"auto.create.topics.enable": "false"}) as (client, door):
        told = await client.ask(3, 9, topics=metadata_topics(9, "yes"))
        assert [topic.error_code for topic in told.topics] == [3]


async def test_metadata_by_id_and_operations(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t")
        stranger = uuid4()
        told = await client.ask(3, 12, topics=metadata_topics(12, topic.topic_id, stranger))
        assert [(each.name, each.error_code) for each in told.topics] == [("t", 0), (None, 100)]
        assert told.topics[0].topic_authorized_operations == -(2**31)
        told = await client.ask(
            3, 12, topics=metadata_topics(12, topic.topic_id), include_topic_authorized_operations=True
        )
        assert told.topics[0].topic_authorized_operations > 0


async def test_describe_topic_partitions_page_by_page(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await door.broker.topics.create(name, partitions=partitions)
        pages, cursor = [], None
        while True:
            told = await client.ask(75, 0, response_partition_limit=2, cursor=cursor)
            pages += [(topic.name, part.partition_index) for topic in told.topics for part in topic.partitions]
            assert all(part.eligible_leader_replicas == () for topic in told.topics for part in topic.partitions)
            if told.next_cursor is None:
                break
            end = told.next_cursor
            cursor = request_part(75, 0, "Cursor", topic_name=end.topic_name, partition_index=end.partition_index)
        assert pages == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        asked = tuple(request_part(75, 0, "TopicRequest", name=name) for name in ("nobody", "c", "a/b"))
        told = await client.ask(75, 0, topics=asked, response_partition_limit=100)
        assert [(topic.name, topic.error_code) for topic in told.topics] == [("a/b", 17), ("c", 0), ("nobody", 3)]


def creatable(version: int, name: str, **fields: Any) -> Any:
    configs = tuple(
        request_part(19, version, "CreatableTopicConfig", name=key, value=value)
        for key, value in fields.pop("configs", {}).items()
    )
    defaults = {"num_partitions": 2, "replication_factor": 1, "configs": configs}
    return request_part(19, version, "CreatableTopic", name=name, **defaults | fields)


async def test_topics_are_created_and_deleted_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        for version in VERSIONS[19]:
            name = f"t{version}"
            asked = (creatable(version, name, configs={"retention.ms": "1000"}),)
            told = (await client.ask(19, version, topics=asked, validate_only=True)).topics
            assert told[0].error_code == 0
            assert door.broker.view.topic(name) is None
            told = (await client.ask(19, version, topics=asked)).topics
            assert told[0].error_code == 0
            topic = door.broker.view.topic(name)
            assert topic is not None
            assert topic.settings.retention_ms == 1000
            if version >= 5:
                assert (told[0].num_partitions, told[0].replication_factor) == (2, 1)
                configs = {config.name: (config.value, config.config_source) for config in told[0].configs}
                assert configs["retention.ms"] == ("1000", 1)
                assert configs["segment.bytes"][1] == 5
                assert set(configs) == set(topic_settings.SETTINGS)
        for version in VERSIONS[20]:
            name = f"t{version + 1}"
            if version < 6:
                told = await client.ask(20, version, topic_names=(name, "nobody"))
            else:
                parts = tuple(request_part(20, version, "DeleteTopicState", name=key) for key in (name, "nobody"))
                told = await client.ask(20, version, topics=parts)
            assert [each.error_code for each in told.responses] == [0, 3]
            assert door.broker.view.topic(name) is None
        topic = await door.broker.topics.create("by-id")
        parts = tuple(
            request_part(20, 6, "DeleteTopicState", name=None, topic_id=key) for key in (topic.topic_id, uuid4())
        )
        told = await client.ask(20, 6, topics=parts)
        assert [(each.name, each.error_code) for each in told.responses] == [("by-id", 0), (None, 100)]


async def test_what_create_topics_refuses(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("there")
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
        told = await client.ask(19, 7, topics=asked)
        assert {each.name: each.error_code for each in told.topics} == {name: code for name, (_, code) in cases.items()}
        assert all(each.configs == () for each in told.topics)
        told = await client.ask(19, 7, topics=(creatable(7, "twice"), creatable(7, "twice")))
        assert [each.error_code for each in told.topics] == [42, 42]
        assert (await client.ask(19, 7, topics=())).topics == ()
        assert [topic.name for topic in door.broker.view.topics()] == ["there"]
        placed = creatable(
            7,
            "placed",
            num_partitions=-1,
            replication_factor=-1,
            assignments=(request_part(19, 7, "CreatableReplicaAssignment", partition_index=0, broker_ids=(0,)),),
        )
        assert (await client.ask(19, 7, topics=(placed,))).topics[0].error_code == 0


async def test_partitions_are_added_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("t")
        for version in VERSIONS[37]:
            total = version + 2

            def grow(name: str, count: int, version: int = version) -> Any:
                return request_part(37, version, "CreatePartitionsTopic", name=name, count=count, assignments=None)

            told = await client.ask(37, version, topics=(grow("t", total), grow("nobody", 5)))
            assert [each.error_code for each in told.results] == [0, 3]
            told = await client.ask(37, version, topics=(grow("t", total),))
            assert told.results[0].error_code == 37
        topic = door.broker.view.topic("t")
        assert topic is not None
        assert len(topic.partitions) == 5


def resource(key: int, version: int, kind: int, name: str, **fields: Any) -> Any:
    part = "DescribeConfigsResource" if key == 32 else "AlterConfigsResource"
    return request_part(key, version, part, resource_type=kind, resource_name=name, **fields)


async def test_settings_are_described_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path, {"log.segment.bytes": "100000"}) as (client, door):
        await door.broker.topics.create("t", overrides={"retention.ms": "5"})
        for version in VERSIONS[32]:
            asked = tuple(
                resource(32, version, kind, name, configuration_keys=None)
                for kind, name in ((2, "t"), (4, "0"), (2, "nobody"), (4, "9"), (8, "0"), (4, ""))
            )
            told = await client.ask(32, version, resources=asked, include_synonyms=True, include_documentation=True)
            assert [each.error_code for each in told.results] == [0, 0, 3, 42, 42, 0]
            topic = {config.name: config for config in told.results[0].configs}
            assert set(topic) == set(topic_settings.SETTINGS)
            assert (topic["retention.ms"].value, topic["retention.ms"].config_source) == ("5", 1)
            assert topic["segment.bytes"].config_source == 4  # by the broker's log.segment.bytes
            assert topic["segment.bytes"].synonyms[0].name == "log.segment.bytes"
            assert topic["flush.ms"].config_source == 5
            node = {config.name: config for config in told.results[1].configs}
            assert {name for name in node if name in broker_settings.SETTINGS} == set(broker_settings.SETTINGS)
            facts = {name: config.value for name, config in node.items() if name not in broker_settings.SETTINGS}
            assert facts == {
                "broker.rack": "",
                "node.id": "0",
                "process.roles": "overseer,carrier",
                "tidemill.clock": "",
                "tidemill.consumers": "",
                "tidemill.grpc": "",
                "tidemill.replica.lag": "",
                "tidemill.state": "healthy",
                "tidemill.state.reason": "",
            }
            assert (node["log.segment.bytes"].value, node["log.segment.bytes"].read_only) == ("100000", True)
            if version >= 3:
                assert topic["retention.ms"].documentation
                assert topic["retention.ms"].config_type == 5
        few = resource(32, 4, 2, "t", configuration_keys=("flush.ms", "nothing"))
        told = await client.ask(32, 4, resources=(few,))
        assert [config.name for config in told.results[0].configs] == ["flush.ms"]
        assert told.results[0].configs[0].synonyms == ()


async def test_settings_are_altered(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("t", overrides={"retention.ms": "5"})

        def overrides() -> dict[str, str]:
            topic = door.broker.view.topic("t")
            assert topic is not None
            return dict(topic.overrides)

        async def change(*changes: tuple[str, int, str | None], name: str = "t", kind: int = 2) -> int:
            codes = set()
            for version in VERSIONS[44]:
                configs = tuple(
                    request_part(44, version, "AlterableConfig", name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                )
                told = await client.ask(44, version, resources=(resource(44, version, kind, name, configs=configs),))
                codes.add(int(told.responses[0].error_code))
            assert len(codes) == 1
            return codes.pop()

        assert await change(("segment.bytes", 0, "1000")) == 0
        assert overrides() == {"retention.ms": "5", "segment.bytes": "1000"}
        assert door.broker.view.partition("t", 0).settings.segment_bytes == 1000
        assert await change(("retention.ms", 1, None), ("cleanup.policy", 2, "compact")) == 0
        assert overrides() == {"segment.bytes": "1000", "cleanup.policy": "delete,compact"}
        assert await change(("cleanup.policy", 3, "delete")) == 0
        assert overrides()["cleanup.policy"] == "compact"
        before = overrides()
        assert await change(("segment.bytes", 2, "5")) == 40
        assert await change(("segment.bytes", 0, None)) == 42
        assert await change(("segment.bytes", 9, "5")) == 42
        assert await change(("nothing", 0, "5")) == 40
        assert await change(("segment.bytes", 0, "5"), ("segment.bytes", 0, "6")) == 42
        assert await change(("segment.bytes", 0, "500"), name="nobody") == 3
        assert await change(("num.partitions", 0, "5"), name="0", kind=4) == 42
        assert overrides() == before
        for version in VERSIONS[33]:
            configs = (request_part(33, version, "AlterableConfig", name="flush.ms", value=str(version + 1)),)
            asked = resource(33, version, 2, "t", configs=configs)
            told = await client.ask(33, version, resources=(asked,), validate_only=True)
            assert told.responses[0].error_code == 0
            assert overrides().get("flush.ms") != str(version + 1)
            told = await client.ask(33, version, resources=(asked,))
            assert overrides() == {"flush.ms": str(version + 1)}


async def test_what_is_added_to_a_list_is_added_to_the_brokers_default(tmp_path: Path) -> None:
    async with connected(tmp_path, {"log.cleanup.policy": "compact"}) as (client, door):
        await door.broker.topics.create("t")
        change = request_part(44, 1, "AlterableConfig", name="cleanup.policy", config_operation=2, value="delete")
        await client.ask(44, 1, resources=(resource(44, 1, 2, "t", configs=(change,)),))
        topic = door.broker.view.topic("t")
        assert topic is not None
        assert dict(topic.overrides) == {"cleanup.policy": "compact,delete"}


async def test_offsets_are_listed_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("t")
        before = clock_ms() - 1
        for _ in range(3):
            await client.ask(0, 9, **produce_fields(9, "t", 0, batch(b"v")))
        await door.broker.view.partition("t", 0).leader.delete_records(1)

        async def ask(version: int, timestamp: int, partition: int = 0, **fields: Any) -> Any:
            part = request_part(
                2, version, "ListOffsetsPartition", partition_index=partition, timestamp=timestamp, **fields
            )
            topic = request_part(2, version, "ListOffsetsTopic", name="t", partitions=(part,))
            told = await client.ask(2, version, replica_id=-1, topics=(topic,))
            return told.topics[0].partitions[0]

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
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("t")
        for _ in range(10):
            await client.ask(0, 9, **produce_fields(9, "t", 0, batch(b"v")))
        epoch = door.broker.view.partition("t", 0).leader_epoch
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
            told = (await client.ask(23, version, topics=(topic,))).topics[0].partitions
            assert [part.error_code for part in told] == [0, 75, 3]
            assert (told[0].leader_epoch, told[0].end_offset) == (epoch, 10)
        for version in VERSIONS[21]:
            parts = tuple(
                request_part(21, version, "DeleteRecordsPartition", partition_index=partition, offset=offset)
                for partition, offset in ((0, version + 1), (0, 99), (3, 0))
            )
            topic = request_part(21, version, "DeleteRecordsTopic", name="t", partitions=parts)
            told = (await client.ask(21, version, topics=(topic,))).topics[0].partitions
            assert [(part.low_watermark, part.error_code) for part in told] == [(version + 1, 0), (-1, 1), (-1, 3)]
        parts = (request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1),)
        topic = request_part(21, 2, "DeleteRecordsTopic", name="t", partitions=parts)
        assert (await client.ask(21, 2, topics=(topic,))).topics[0].partitions[0].low_watermark == 10


async def test_the_brokers_own_topics_are_not_for_clients(tmp_path: Path) -> None:
    name = "__consumer_offsets"

    async with connected(tmp_path) as (client, door):
        told = await client.ask(0, 9, **produce_fields(9, name, 0, batch(b"v")))
        assert told.responses[0].partition_responses[0].error_code == 17
        parts = (request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1),)
        topic = request_part(21, 2, "DeleteRecordsTopic", name=name, partitions=parts)
        assert (await client.ask(21, 2, topics=(topic,))).topics[0].partitions[0].error_code == 17
        more = request_part(37, 3, "CreatePartitionsTopic", name=name, count=99, assignments=None)
        assert (await client.ask(37, 3, topics=(more,))).results[0].error_code == 17
        assert (await client.ask(19, 7, topics=(creatable(7, name),))).topics[0].error_code == 17
        assert (await client.ask(20, 5, topic_names=(name,))).responses[0].error_code in {3, 17}
        assert door.broker.view.topics() == []


async def test_the_cluster_and_its_coordinators_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        for version in VERSIONS[60]:
            told = await client.ask(60, version, endpoint_type=1)
            assert (told.error_code, told.cluster_id, told.controller_id) == (0, door.broker.cluster_id, 0)
            assert [(node.broker_id, node.host, node.port) for node in told.brokers] == [(0, *door.address)]
            if version >= 1:
                assert (await client.ask(60, version, endpoint_type=2)).error_code == 42
        for version in VERSIONS[10]:
            if version < 4:
                told = await client.ask(10, version, key="g", key_type=1)
                assert (told.error_code, told.node_id, told.host, told.port) == (0, 0, *door.address)
            else:
                told = await client.ask(10, version, coordinator_keys=("g", "h"), key_type=0)
                assert [(each.key, each.error_code, each.node_id) for each in told.coordinators] == [
                    ("g", 0, 0),
                    ("h", 0, 0),
                ]
        told = await client.ask(10, 6, coordinator_keys=("g",), key_type=2)
        assert [(each.error_code, each.node_id) for each in told.coordinators] == [(42, -1)]


async def test_directories_elections_and_reassignments_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        await door.broker.topics.create("t", partitions=2)
        await client.ask(0, 9, **produce_fields(9, "t", 0, batch(b"v")))
        for version in VERSIONS[35]:
            (result,) = (await client.ask(35, version, topics=None)).results
            sizes = [part.partition_size for part in result.topics[0].partitions]
            assert sizes == [len(batch(b"v")), 0]
            assert result.log_dir == "memory"
            topic = request_part(35, version, "DescribableLogDirTopic", topic="t", partitions=(1, 9))
            (result,) = (await client.ask(35, version, topics=(topic,))).results
            assert [part.partition_index for part in result.topics[0].partitions] == [1]
        for version in VERSIONS[43]:
            asked = request_part(43, version, "TopicPartitions", topic="t", partitions=(0, 9))
            told = await client.ask(43, version, topic_partitions=(asked,))
            results = told.replica_election_results[0].partition_result
            assert [each.error_code for each in results] == [84, 3]
            assert (await client.ask(43, version, topic_partitions=None)).replica_election_results == ()
        for version in VERSIONS[45]:
            parts = tuple(
                request_part(45, version, "ReassignablePartition", partition_index=index, replicas=replicas)
                for index, replicas in ((0, (0,)), (0, (1,)), (0, None), (9, (0,)))
            )
            asked = request_part(45, version, "ReassignableTopic", name="t", partitions=parts)
            told = await client.ask(45, version, topics=(asked,))
            assert [each.error_code for each in told.responses[0].partitions] == [0, 39, 85, 3]
        assert (await client.ask(46, 0, topics=None)).topics == ()


@pytest.mark.parametrize("key", sorted(VERSIONS))
async def test_an_empty_request_of_every_api_and_version_is_answered_or_refused(tmp_path: Path, key: int) -> None:
    """Zero in every field, no item in any array: the broker lives on (CVE-2026-83525 was such a request)."""
    async with connected(tmp_path, {"group.min.session.timeout.ms": "1"}) as (client, door):
        for version in VERSIONS[key]:
            if key == 0 and version < 3:
                continue
            assert request_class(key, version)
            probe = await RawClient.connect(door)
            probe.send(key, version)
            probe.send(18, 0)
            with suppress(EOFError, ConnectionError):
                await probe.frame()
            await probe.close()
        await client.ask(18, 0)


async def test_what_is_asked_for_twice_or_in_two_ways(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t", partitions=1)
        both = request_part(3, 12, "MetadataRequestTopic", name="t", topic_id=UUID(int=7))
        told = await client.ask(3, 12, topics=(both,), allow_auto_topic_creation=False)
        assert [each.error_code for each in told.topics] == [100], "an id is what it is; a name may be another topic's"
        twice = (request_part(20, 6, "DeleteTopicState", name="t", topic_id=None),) * 2
        told = await client.ask(20, 6, topics=twice)
        assert {each.error_code for each in told.responses} == {42}
        assert door.broker.view.topic("t") == topic


async def test_records_of_a_compacted_topic_are_not_deleted_by_their_offsets(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, door):
        for policy, code in (("compact", 44), ("compact,delete", 0)):
            await door.broker.topics.create(f"kept-{code}", partitions=1, overrides={"cleanup.policy": policy})
            part = request_part(21, 2, "DeleteRecordsPartition", partition_index=0, offset=-1)
            asked = request_part(21, 2, "DeleteRecordsTopic", name=f"kept-{code}", partitions=(part,))
            told = await client.ask(21, 2, topics=(asked,))
            assert told.topics[0].partitions[0].error_code == code


async def test_who_leaves_a_group_that_is_not_there_hears_it_of_each_member(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        leaver = request_part(13, 5, "MemberIdentity", member_id="ada", group_instance_id=None, reason=None)
        told = await client.ask(13, 5, group_id="nobody", members=(leaver,))
        assert (told.error_code, [each.error_code for each in told.members]) == (0, [25])
