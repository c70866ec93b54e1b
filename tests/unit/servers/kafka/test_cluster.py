"""Brokers, coordinators, directories and reassignments through the Kafka server, in every version."""

from pathlib import Path

import pytest
from tests.support.kafka_server import batch, produce_fields, request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

pytestmark = pytest.mark.event_loop("uvloop")


async def test_the_cluster_and_its_coordinators_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        for version in VERSIONS[60]:
            reported = await client.ask(60, version, endpoint_type=1)
            assert (reported.error_code, reported.cluster_id, reported.controller_id) == (
                0,
                server.broker.cluster_id,
                0,
            )
            assert [(node.broker_id, node.host, node.port) for node in reported.brokers] == [(0, *server.address)]
            if version >= 1:
                assert (await client.ask(60, version, endpoint_type=2)).error_code == 42
        for version in VERSIONS[10]:
            if version < 4:
                reported = await client.ask(10, version, key="g", key_type=1)
                assert (reported.error_code, reported.node_id, reported.host, reported.port) == (0, 0, *server.address)
            else:
                reported = await client.ask(10, version, coordinator_keys=("g", "h"), key_type=0)
                assert [(each.key, each.error_code, each.node_id) for each in reported.coordinators] == [
                    ("g", 0, 0),
                    ("h", 0, 0),
                ]
        reported = await client.ask(10, 6, coordinator_keys=("g",), key_type=2)
        assert [(each.error_code, each.node_id) for each in reported.coordinators] == [(42, -1)]


async def test_directories_elections_and_reassignments_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("t", partitions=2)
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
            reported = await client.ask(43, version, topic_partitions=(asked,))
            results = reported.replica_election_results[0].partition_result
            assert [each.error_code for each in results] == [84, 3]
            assert (await client.ask(43, version, topic_partitions=None)).replica_election_results == ()
        for version in VERSIONS[45]:
            parts = tuple(
                request_part(45, version, "ReassignablePartition", partition_index=index, replicas=replicas)
                for index, replicas in ((0, (0,)), (0, (1,)), (0, None), (9, (0,)))
            )
            asked = request_part(45, version, "ReassignableTopic", name="t", partitions=parts)
            reported = await client.ask(45, version, topics=(asked,))
            assert [each.error_code for each in reported.responses[0].partitions] == [0, 39, 85, 3]
        assert (await client.ask(46, 0, topics=None)).topics == ()
