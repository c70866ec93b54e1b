"""Brokers, coordinators, directories and reassignments through the Kafka server, in every version."""

from pathlib import Path

import pytest
from tests.support.kafka_server import batch, produce_fields, request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

pytestmark = pytest.mark.event_loop("uvloop")


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
