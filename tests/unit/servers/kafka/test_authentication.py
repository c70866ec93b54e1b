"""The proof of the cluster's secret between brokers."""

from pathlib import Path

import pytest
from tests.support.kafka_server import RawClient, fetch_fields, running_kafka_server
from tests.unit.servers.kafka.replica_links import LIMITS, SECRET, batch, led, peer, wanted

from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable
from tidemill.model.errors import ClusterAuthorizationFailed
from tidemill.replication.peers import PeerLink, Peers


async def test_a_peer_needs_the_cluster_secret(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        with pytest.raises(AuthenticationFailed, match="belongs to no cluster"):
            await peer(server)
        server.broker.cluster_secret = SECRET
        with pytest.raises(AuthenticationFailed, match="another cluster secret"):
            await peer(server, b"of another")
        connection = await peer(server)
        connection.close()
        with pytest.raises(BrokerUnreachable):
            await Peers(1, lambda _: None, lambda: SECRET, LIMITS).link(0)


async def test_steps_out_of_order_and_wrong_proofs_are_refused(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        client = await RawClient.connect(server)
        assert (await client.ask(36, 2, auth_bytes=b"x")).error_code == 34
        assert (await client.ask(17, 1, mechanism="PLAIN")).error_code == 33
        for steps in ([b"short"], [b"\0\0\0\x01" + bytes(32), bytes(32)]):
            assert (await client.ask(17, 1, mechanism="TIDEMILL-CLUSTER")).error_code == 0
            codes = [(await client.ask(36, 2, auth_bytes=step)).error_code for step in steps]
            assert codes[-1] == 58
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {0: 0}, replica_id=1))
        assert answer.error_code == ClusterAuthorizationFailed.code
        client.writer.close()


async def test_cve_2018_1288_no_client_fetches_as_another_replica(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        topic_id, partition = await led(server)
        await partition.leader.append(batch(b"v"), acks=1)
        link = PeerLink(await peer(server, node_id=1), 2, LIMITS)
        with pytest.raises(ClusterAuthorizationFailed):
            await link.fetch(wanted(topic_id, 1, 3))
        assert partition.high_watermark == 0
        link.close()
